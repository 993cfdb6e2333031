"""Cells: what one configuration found, whatever file it comes from, for charts over configurations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.results.repeats import leaves
from kvbench.sweeps.groups import group_cells
from kvbench.units import parse_bytes, parse_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbench.sweeps.groups import CellGroup
    from kvbench.sweeps.result import SweepResult

NAMED = ("policy", "router", "index")
"""Settings of a matrix beside its capacity; those that are null have no meaning in it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration over one trace.

    ``name``      of a run, which is the name of its file; empty where settings tell cells apart.
    ``digest``    of the trace's rows.
    ``settings``  what tells it from its neighbours: setting path → value.
    ``figures``   mean of each figure over the seeds, by path in the summary.
    ``low``, ``high``  ends of the 95 % interval of that mean; without those of one seed.
    ``block_bytes``  of a full block, where they are known.
    """

    digest: str
    settings: Mapping[str, Any]
    figures: Mapping[str, float]
    low: Mapping[str, float] = field(default_factory=dict)
    high: Mapping[str, float] = field(default_factory=dict)
    block_bytes: int | None = None
    name: str = ""

    def setting(self, path: str) -> str:
        """A setting in words."""
        return in_words(self.settings.get(path))

    def label(self, paths: Iterable[str]) -> str:
        """What tells this cell from others that differ in ``paths``."""
        return self.name or ", ".join(filter(None, map(self._told, paths)))

    def _told(self, path: str) -> str:
        """A setting beside others: a number with what it is of."""
        value, text = self.settings.get(path), self.setting(path)
        return "" if value is None else f"{path} {text}" if as_number(value) is not None else text


def in_words(value: Any) -> str:
    """A setting as people write it: a part by its name and parameters."""
    if value is None:
        return "–"
    if isinstance(value, dict):
        return ",".join([str(value.get("name", "")), *(f"{k}={in_words(v)}" for k, v in value.items() if k != "name")])
    if isinstance(value, (list, tuple)):
        return " + ".join(in_words(each) for each in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else str(value)


def as_number(value: Any) -> float | None:
    """A setting as a number, ``64GiB`` and ``10k`` as well; None for a name or a share."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return value
    for parse in (parse_count, parse_bytes):
        try:
            return parse(str(value))
        except ConfigError:
            continue
    return None


def numbers_in(summary: Mapping[str, Any]) -> dict[str, float]:
    """Every number of a summary by its path."""
    found = leaves(dict(summary))
    return {path: value for path, value in found if isinstance(value, (int, float)) and not isinstance(value, bool)}


def cells_of_matrix(document: Mapping[str, Any]) -> list[Cell]:
    """Those of a replay of several policies, routers or capacities."""
    digest, size = document["trace"]["digest"], document["config"].get("block_bytes")
    return [
        Cell(
            digest,
            {"capacity": each["capacity"], **{name: each[name] for name in NAMED if each[name] is not None}},
            numbers_in({key: value for key, value in each.items() if key not in ("capacity", *NAMED)}),
            block_bytes=size,
        )
        for each in document["cells"]
    ]


def cell_of_seeds(document: Mapping[str, Any], name: str) -> Cell:
    """That of a replay under several seeds."""
    figures, config = document["figures"], document["config"]
    ends = {end: {p: f[end] for p, f in figures.items() if f[end] is not None} for end in ("low", "high")}
    means = {path: figure["mean"] for path, figure in figures.items()}
    digest = document["trace"]["digest"]
    return Cell(digest, config, means, **ends, block_bytes=config.get("block_bytes"), name=name)


def cells_of_sweep(sweep: SweepResult) -> list[Cell]:
    """Those of a sweep that are done, with cells that differ in their seed only made one."""
    digest = sweep.manifest["trace"]["digest"]
    return [
        Cell(
            digest,
            _of_one_tier(group.axes),
            {path: estimate.mean for path, estimate in group.figures.items()},
            {path: estimate.low for path, estimate in group.figures.items() if estimate.low is not None},
            {path: estimate.high for path, estimate in group.figures.items() if estimate.high is not None},
            block_bytes=_block_bytes(group),
        )
        for group in group_cells(sweep)
        if group.figures
    ]


def _of_one_tier(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those of a stack of one tier as the cache's, so that its capacity is on the axis of capacities."""
    rest = {path: value for path, value in settings.items() if path != "tiers"}
    match settings.get("tiers"):
        case [dict(tier)] if not rest.keys() & tier.keys():
            return {**{key: value for key, value in tier.items() if key != "name"}, **rest}
    return dict(settings)


def _block_bytes(group: CellGroup) -> int | None:
    summaries = (cell.summary or {} for cell in group.cells)
    return next((summary["bytes"]["block"] for summary in summaries if summary.get("bytes")), None)
