"""Runs side by side: what differs, by how much, and where."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.results.repeats import leaves
from kvbench.results.rowdiff import RowDifferences, row_differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.results.runfile import Run

ROUNDING = 1e-12
"""Relative difference below which two numbers are one: sums over rows are rounded in the order in which they are
added up."""

VERSIONS = ("kvbench", "plugins", "files")
"""Of a manifest, what may make a difference beside the configuration."""

TABLE_SCHEMA: Any = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("reference", pa.string(), nullable=False),
        pa.field("figure", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("reference_value", pa.float64()),
        pa.field("delta", pa.float64()),
        pa.field("share", pa.float64()),
    ]
)
"""The tidy table: a row for each run and figure. ``share`` is ``delta / |reference_value|``."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure in every run, the reference first; None where a run does not have it."""

    figure: str
    values: tuple[float | None, ...]

    def delta(self, run: int) -> float | None:
        """What run number ``run`` has more than the reference; 0 for what is a matter of rounding."""
        own, reference = self.values[run], self.values[0]
        if own is None or reference is None:
            return None
        return 0.0 if math.isclose(own, reference, rel_tol=ROUNDING) else own - reference

    def share(self, run: int) -> float | None:
        """The same as a share of the reference; None where that is 0 and the other is not."""
        delta, reference = self.delta(run), self.values[0]
        if delta is None or reference is None or (delta and not reference):
            return None
        return delta / abs(reference) if delta else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing ``runs`` found; the first is the reference.

    ``figures``  all that any run has, by path in the summary.
    ``texts``    what they say in other words, by path.
    ``settings`` settings, versions and contents of files that differ, by path.
    ``rows``     for each run but the first how its requests differ; None where there are no two tables of one trace.
    """

    runs: tuple[Run, ...]
    figures: dict[str, Compared]
    texts: dict[str, tuple[str | None, ...]]
    settings: dict[str, tuple[Any, ...]]
    rows: tuple[RowDifferences | None, ...]

    def lacking(self, run: int) -> list[str]:
        """Figures that one of the reference and run number ``run`` has and the other has not."""
        return [name for name, each in self.figures.items() if (each.values[0] is None) != (each.values[run] is None)]

    def differing(self, run: int) -> list[str]:
        """Figures of both that differ."""
        return [name for name, each in self.figures.items() if each.delta(run)]

    def is_equal(self, run: int) -> bool:
        """Whether run number ``run`` is as the reference: in all figures (of both, where one is a document and the
        other a table, which has fewer), words and, of two tables of one trace, requests."""
        of_a_kind = (self.runs[0].rows is None) == (self.runs[run].rows is None)
        differs = self.differing(run) or (of_a_kind and self.lacking(run)) or self._has_other_words(run)
        rows = self.rows[run - 1]
        return not differs and (rows is None or rows.is_equal)

    def _has_other_words(self, run: int) -> bool:
        return any(each[0] != each[run] for each in self.texts.values() if None not in (each[0], each[run]))

    @property
    def equal(self) -> bool:
        """Whether all runs are as the reference."""
        return all(self.is_equal(run) for run in range(1, len(self.runs)))

    def _repr_html_(self) -> str:
        from kvbench.results.notebook import comparison_html

        return comparison_html(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        others = range(1, len(self.runs))
        return {
            "equal": self.equal,
            "reference": self.runs[0].name,
            "runs": [
                {"name": run.name, "kvbench": run.manifest["kvbench"], "trace_digest": run.digest} for run in self.runs
            ],
            "settings": {name: list(values) for name, values in self.settings.items()},
            "texts": {name: list(values) for name, values in self.texts.items()},
            "figures": {
                name: {
                    "values": list(each.values),
                    "delta": [each.delta(run) for run in others],
                    "share": [each.share(run) for run in others],
                }
                for name, each in self.figures.items()
            },
            "requests": [None if rows is None else asdict(rows) for rows in self.rows],
        }

    def table(self) -> pa.Table:
        """The tidy table, see :data:`TABLE_SCHEMA`; the reference is in it, too."""
        reference = self.runs[0].name
        rows = [
            (run.name, reference, name, each.values[at], each.values[0], each.delta(at), each.share(at))
            for at, run in enumerate(self.runs)
            for name, each in self.figures.items()
        ]
        names = TABLE_SCHEMA.names
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=TABLE_SCHEMA)


def compare_runs(runs: Sequence[Run], *, different_traces: bool = False) -> Comparison:
    """Compare ``runs`` with the first. Raises ConfigError for fewer than two, and for runs of different traces unless
    ``different_traces``."""
    if len(runs) < 2:
        raise ConfigError("a comparison needs two runs or more; or give --measured")
    for run in runs[1:]:
        if run.digest != runs[0].digest and not different_traces:
            raise ConfigError(
                f"{run.name} is of another trace than {runs[0].name} ({_trace(run)}, not {_trace(runs[0])}), so their "
                "figures say nothing of each other; give --different-traces to compare them all the same"
            )
    names = dict.fromkeys(name for run in runs for name in run.figures)
    words = dict.fromkeys(name for run in runs for name in run.texts)
    texts = {name: tuple(run.texts.get(name) for run in runs) for name in words}
    return Comparison(
        tuple(runs),
        {name: Compared(name, tuple(run.figures.get(name) for run in runs)) for name in names},
        {name: found for name, found in texts.items() if len(set(found)) > 1},
        _settings(runs),
        tuple(_rows(runs[0], run) for run in runs[1:]),
    )


def _trace(run: Run) -> str:
    trace = run.manifest["trace"]
    return f"{trace.get('source_name') or 'no name'}, {run.digest[:19]}…"


def _settings(runs: Sequence[Run]) -> dict[str, tuple[Any, ...]]:
    """What differs of configuration, versions and files."""
    found = [
        dict(leaves(run.manifest["config"]))
        | dict(leaves({name: run.manifest[name] for name in VERSIONS if name in run.manifest}))
        for run in runs
    ]
    names = dict.fromkeys(name for each in found for name in each)
    values = {name: tuple(each.get(name) for each in found) for name in names}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}


def _rows(reference: Run, run: Run) -> RowDifferences | None:
    if reference.rows is None or run.rows is None or reference.digest != run.digest:
        return None
    if ("compute" in reference.manifest["config"]) != ("compute" in run.manifest["config"]):
        return None  # a timed replay has a clock of its own
    return row_differences(reference.rows, run.rows)
