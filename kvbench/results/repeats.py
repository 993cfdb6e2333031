"""One replay under several seeds: what each figure is on average, and how sure that is (user report J01)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kvbench.errors import ArgumentError
from kvbench.replays.confidence import mean_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kvbench.results.result import ReplayResult

NAMED_BY = ("tier", "name")
"""Keys whose value stands in the path of a figure where a summary has a list of records; else it is the place in it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure over the runs in which it is not null (``n`` of them): mean, standard deviation (n - 1 in the
    denominator), and the ends of the 95 % confidence interval of the mean by Student's t; None of one run."""

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of at least one value."""
        mean, deviation, half = mean_interval(values)
        if half is None:
            return cls(len(values), mean, None, None, None)
        return cls(len(values), mean, deviation, mean - half, mean + half)

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None else self.high - self.mean


@dataclass(slots=True)
class RepeatResult:
    """The outcome of a replay under several seeds.

    ``manifest``   that of the first run; ``seeds`` are the seeds of all.
    ``figures``    by path in the summary: ``rates.token``, ``timed.ttft_ns.p95``, ``tiers.cpu.hit_blocks``, …
    ``summaries``  of each run.
    """

    manifest: dict[str, Any]
    seeds: list[int]
    figures: dict[str, Figure]
    summaries: list[dict[str, Any]]
    wall_clock: dict[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from kvbench.results.notebook import repeat_html

        return repeat_html(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            **self.manifest,
            "seeds": self.seeds,
            "figures": {path: asdict(figure) for path, figure in self.figures.items()},
            "summaries": self.summaries,
            "wall_clock": self.wall_clock,
        }


def repeat(run: Callable[[int], ReplayResult], seeds: Sequence[int]) -> RepeatResult:
    """``run`` with each of ``seeds``, in their order. Raises ArgumentError without a seed."""
    if not seeds:
        raise ArgumentError("there is no seed to run with")
    results = [run(seed) for seed in seeds]
    summaries = [result.summary for result in results]
    clock = {name: sum(each.wall_clock[name] for each in results) for name in SUMMED if name in results[0].wall_clock}
    return RepeatResult(results[0].manifest, list(seeds), figures_of(summaries), summaries, clock)


SUMMED = ("replay_s",)
"""What adds up of the wall clocks."""


def figures_of(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Every number of the summaries, in the order in which they first come; those that are always null are left out."""
    values: dict[str, list[float]] = {}
    for summary in summaries:
        for path, value in leaves(summary):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                values.setdefault(path, []).append(value)
    return {path: Figure.of(found) for path, found in values.items()}


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a summary or a configuration that is no record and no list, with its path."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, (list, tuple)):
        for at, value in enumerate(node):
            yield from leaves(value, f"{path}.{_name(value, at)}")
    else:
        yield path, node


def _name(value: Any, at: int) -> str:
    """What to call an item of a list; there may be several links of one name, one a store."""
    if not isinstance(value, dict):
        return str(at)
    name = str(next((value[key] for key in NAMED_BY if key in value), at))
    return f"{name}/{value['store']}" if "store" in value else name
