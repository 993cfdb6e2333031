"""Cells that differ in their seed alone, as one: mean and confidence interval of each figure; and the best of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.results.columnunits import unit_of
from kvbench.results.repeats import Figure
from kvbench.results.thresholds import figure_of
from kvbench.sweeps.plan import SEED
from kvbench.trace.schema import canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.sweeps.result import SweepCell, SweepResult

MORE = ("rates.", "_rates.", "goodput.", "_per_s", "hit_", ".hit", "utilisation")
LESS = ("_ns", "misses.", "evicted", "max_over_mean", "rejected", "preempt", "recomputed", "lost", "drain")
"""What in a figure's path tells that more of it, or less, is better."""


@dataclass(slots=True)
class CellGroup:
    """The cells of one setting.

    ``axes``     what they share, ``seed`` left out.
    ``cells``    one a seed.
    ``figures``  over those of them that are done, by path.
    """

    axes: dict[str, Any]
    cells: list[SweepCell] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure that is to be high (``more``) or low; ``name`` is how it was asked for."""

    name: str
    figure: str
    more: bool

    def gain(self, group: CellGroup) -> float | None:
        """How good a group is: more is better. None where the figure is not known."""
        figure = group.figures.get(self.figure)
        return None if figure is None else figure.mean if self.more else -figure.mean


def group_cells(result: SweepResult) -> list[CellGroup]:
    """The cells of a sweep in their order, those that differ in ``seed`` alone as one."""
    groups: dict[str, CellGroup] = {}
    for cell in result.cells:
        axes = {path: value for path, value in cell.axes.items() if path != SEED}
        key = canonical_json(axes)
        groups.setdefault(key, CellGroup(axes)).cells.append(cell)
    for group in groups.values():
        values: dict[str, list[float]] = {}
        for cell in group.cells:
            for path, value in cell.figures.items():
                values.setdefault(path, []).append(value)
        group.figures = {path: Figure.of(found) for path, found in values.items()}
    return list(groups.values())


def parse_objectives(text: str, groups: Sequence[CellGroup]) -> list[Objective]:
    """The objectives of ``token_rate,ttft_p99``: paths or short names of figures, with ``+`` before one that is to be
    high and ``-`` before one that is to be low, where that goes without saying or not. Raises ConfigError."""
    known = list(dict.fromkeys(path for group in groups for path in group.figures))
    objectives = []
    for item in objective_names(text):
        sign, name = item.strip()[:1], item.strip().lstrip("+-")
        figure = figure_of(name, known, f"--pareto {text}")
        more = sign == "+" if sign in ("+", "-") else _is_better_high(figure, f"--pareto {text}")
        objectives.append(Objective(name, figure, more))
    return objectives


def objective_names(text: str) -> list[str]:
    """The items of ``token_rate,ttft_p99``. Raises ConfigError for fewer than two, before any cell has run."""
    items = text.split(",")
    if len(items) < 2:
        raise ConfigError(f"--pareto {text}: a front has at least two figures, as in token_rate,ttft_p99")
    return items


def pareto_front(groups: Sequence[CellGroup], objectives: Sequence[Objective]) -> list[CellGroup]:
    """The groups that no other one is as good as in all objectives and better in one, the best of the first objective
    first. Groups without one of the figures are left out."""
    known = []
    for group in groups:
        gains = [objective.gain(group) for objective in objectives]
        if None not in gains:
            known.append((tuple(gain for gain in gains if gain is not None), group))
    front = [
        (gains, group)
        for gains, group in known
        if not any(other != gains and all(a >= b for a, b in zip(other, gains, strict=True)) for other, _ in known)
    ]
    return [group for _, group in sorted(front, key=lambda each: each[0], reverse=True)]


def _is_better_high(figure: str, where: str) -> bool:
    if any(part in figure for part in MORE):
        return True
    if any(part in figure for part in LESS) or unit_of(figure) == "ns":
        return False
    raise ConfigError(f"{where}: is {figure} to be high or low? Write +{figure} or -{figure}")
