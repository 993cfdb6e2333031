"""The figures of a run's timeline: what stores hold and move, how busy workers and links are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvbench.report.figure import Figure, lines
from kvbench.results.curvetable import GIB
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

MAX_SAMPLES = 240
"""Of a timeline; of more every so many-th is drawn."""

HELD = ("pinned_blocks", "reusable_blocks", "private_blocks")
"""What takes room in a store."""


class _Timeline:
    """A timeline whose rows are summed over the stores of a tier, the workers, and the links of a name, at each of
    at most MAX_SAMPLES samples."""

    def __init__(self, path: Path, prefix: str, block_bytes: int | None) -> None:
        table = pq.read_table(path)
        self.timed = "kind" in table.column_names
        if not self.timed:
            kind = pa.array(["store"] * len(table))
            table = table.rename_columns(
                [{"tier": "name", "store": "number"}.get(name, name) for name in table.column_names]
            ).append_column("kind", kind)
        self.clock = "time_ns" if self.timed else "requests"
        samples = pc.unique(table.column(self.clock)).sort()
        self.every = max(1, -(-len(samples) // MAX_SAMPLES))
        kept = samples.take(pa.array(range(self.every - 1, len(samples), self.every)))
        self.table = table.filter(pc.is_in(table.column(self.clock), value_set=kept))
        self.prefix, self.block_bytes = prefix, block_bytes
        self.x_title = "simulated time (s)" if self.timed else "requests served"

    def sums(self, kind: str, columns: list[str], how: str = "sum") -> list[dict[str, Any]]:
        """A row for each sample and name, in the order of the clock."""
        table = self.table.filter(pc.equal(self.table.column("kind"), kind))
        present = [name for name in columns if name in table.column_names]
        grouped = table.group_by([self.clock, "name"], use_threads=False).aggregate([(name, how) for name in present])
        rows = grouped.sort_by([(self.clock, "ascending")]).to_pylist()
        return [
            {
                self.x: row[self.clock] / NS_PER_S if self.timed else row[self.clock],
                "name": row["name"],
                **{name: row[f"{name}_{how}"] for name in present},
            }
            for row in rows
        ]

    @property
    def x(self) -> str:
        return "seconds" if self.timed else "requests"

    def lines(self, name: str, title: str, rows: list[dict[str, Any]], y: str, y_title: str, **more: Any) -> Figure:
        """A figure over the clock."""
        notes = [f"Every {self.every:,}th sample is drawn."] if self.every > 1 else []
        note = " ".join([*notes, *([more.pop("note")] if "note" in more else [])])
        return lines(
            f"{self.prefix}{name}", title, rows, x=self.x, y=y, x_title=self.x_title, y_title=y_title, note=note, **more
        )


def time_figures(path: Path, prefix: str = "", block_bytes: int | None = None) -> list[Figure]:
    """All that the timeline has rows for; ``prefix`` stands before their names."""
    timeline = _Timeline(path, prefix, block_bytes)
    found = [_occupancy(timeline), _traffic(timeline)]
    if timeline.timed:
        found += [_busy(timeline), _waiting(timeline), _links(timeline)]
    return [figure for figure in found if figure.rows]


def _occupancy(timeline: _Timeline) -> Figure:
    size = timeline.block_bytes
    y, y_title = ("held_gib", "held (GiB)") if size else ("held_blocks", "held (blocks)")
    rows = []
    for row in timeline.sums("store", list(HELD)):
        blocks = sum(row[name] or 0 for name in HELD if name in row)
        rows.append({timeline.x: row[timeline.x], "tier": row["name"], y: blocks * size / GIB if size else blocks})
    return timeline.lines(
        "occupancy",
        "What tiers hold",
        rows,
        y,
        y_title,
        series="tier",
        step=True,
        note="All stores of a tier together.",
    )


TRAFFIC: dict[tuple[bool, bool], tuple[str, str, float]] = {
    (True, True): ("gb_per_s", "GB a second", 1e9),
    (True, False): ("blocks_per_s", "blocks a second", 1),
    (False, True): ("mb_per_request", "MB a request", 1e6),
    (False, False): ("blocks_per_request", "blocks a request", 1),
}
"""Of timed replay or not, with the size of a block or without: key, title and size of the unit."""


def _traffic(timeline: _Timeline) -> Figure:
    """What moved between one sample and the next, over the time or the requests between them."""
    unit = "bytes" if timeline.block_bytes else "blocks"
    y, y_title, size = TRAFFIC[timeline.timed, unit == "bytes"]
    before: dict[str, dict[str, Any]] = {}
    rows = []
    for row in timeline.sums("store", [f"read_{unit}", f"written_{unit}"]):
        last = before.get(row["name"])
        before[row["name"]] = row
        for what in ("read", "written"):
            column = f"{what}_{unit}"
            if last is not None and row[column] is not None and last[column] is not None:
                amount = (row[column] - last[column]) / (row[timeline.x] - last[timeline.x]) / size
                rows.append({timeline.x: row[timeline.x], "of": f"{row['name']} {what}", y: amount})
    return timeline.lines("traffic", "What tiers read and write", rows, y, y_title, series="of", step=True)


def _busy(timeline: _Timeline) -> Figure:
    rows = [
        {timeline.x: row[timeline.x], "busy_share": row["busy_share"]}
        for row in timeline.sums("worker", ["busy_share"], "mean")
        if row["busy_share"] is not None
    ]
    return timeline.lines(
        "busy", "How busy workers are", rows, "busy_share", "share of time in steps", percent=True, note="Mean of all."
    )


def _waiting(timeline: _Timeline) -> Figure:
    states = ("waiting", "fetching", "ready", "prefilling", "decoding")
    rows = [
        {timeline.x: row[timeline.x], "state": state, "requests": row[state]}
        for row in timeline.sums("worker", list(states))
        for state in states
    ]
    return timeline.lines(
        "in-flight",
        "Requests in flight",
        rows,
        "requests",
        "requests",
        series="state",
        step=True,
        note="Of all workers.",
    )


def _links(timeline: _Timeline) -> Figure:
    rows = [
        {timeline.x: row[timeline.x], "link": row["name"], "busy_share": row["busy_share"]}
        for row in timeline.sums("link", ["busy_share"], "mean")
        if row["busy_share"] is not None
    ]
    return timeline.lines(
        "link-use",
        "Link use over time",
        rows,
        "busy_share",
        "share of time with a transfer",
        series="link",
        percent=True,
        whole=False,
        note="Mean of the links of a name.",
    )
