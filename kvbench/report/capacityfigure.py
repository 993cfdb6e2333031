"""The figure of hit rates over capacity: the exact LRU curve, what was replayed, and the bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvbench.report.cellfigures import CAPACITY, fewest, varied
from kvbench.report.figure import Figure, lines
from kvbench.results.curvetable import GIB
from kvbench.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.report.cells import Cell
    from kvbench.report.sources import ReportCurve

    Row = dict[str, Any]

CURVE_POINTS = 80
"""Of a curve, evenly over the logarithm of the capacity."""

LRU, OPT, INFINITE = "LRU (exact curve)", "OPT (Belady)", "infinite cache"


NO_OPT = (
    "The line of OPT (Belady) is missing, as no file has it: kvbench replay --json of several capacities does, and "
    "kvbench sweep --belady on."
)


def capacity_figure(
    curve: ReportCurve | None, cells: Sequence[Cell], rate: str, prefix: str = "", about: str = ""
) -> Figure | None:
    """The hit rate named ``rate`` over capacity, in GiB where the bytes of a block are known for all of it; None where
    there are not two capacities.

    ``curve``  gives the line of LRU at every capacity, its error bars if it is of a sample, and the knee.
    ``cells``  a line for what they differ in beside capacity; and that of the Belady bound.
    ``about``  what stands behind the title.
    """
    cells = [cell for cell in cells if CAPACITY in cell.figures and f"rates.{rate}" in cell.figures]
    sizes = [cell.block_bytes for cell in cells]
    if curve is not None:
        sizes.append(curve.manifest["config"].get("block_bytes"))
    in_bytes = None not in sizes
    key = "capacity_gib" if in_bytes else CAPACITY
    replayed = [row for row in _replayed(cells, rate, key) if curve is None or row["cache"] != "lru"]
    drawn, note = fewest(replayed, "cache", "hit_rate", highest=True)
    exact = _curve_rows(curve, rate, key) if curve is not None else []
    bound = _bound(cells, rate, key)
    rows = [*exact, *drawn, *bound]
    if len({row[key] for row in rows}) < 2:
        return None
    rows += _level(rows, _infinite(curve, cells, rate), key)
    has_bars = any("low" in row for row in rows)
    thinned = f"The curve is drawn at {len(exact):,} of its capacities." if exact else ""
    notes = [thinned, note, "OPT evicts what is needed last, knowing the future." if bound else NO_OPT]
    return lines(
        f"{prefix}hit-rate",
        "Hit rate over capacity" + about,
        rows,
        x=key,
        y="hit_rate",
        x_title="capacity (GiB)" if in_bytes else "capacity (blocks)",
        y_title=f"{rate} hit rate",
        series="cache",
        x_log=True,
        percent=True,
        rules=_knee(curve, key) if curve is not None else [],
        low="low" if has_bars else None,
        high="high" if has_bars else None,
        note=" ".join(filter(None, notes)),
    )


def _at(blocks: float, block_bytes: int | None, key: str) -> dict[str, float]:
    return {key: blocks if key == CAPACITY or block_bytes is None else blocks * block_bytes / GIB}


def _curve_rows(curve: ReportCurve, rate: str, key: str) -> list[Row]:
    size = curve.manifest["config"].get("block_bytes")
    columns = [CAPACITY, f"{rate}_rate", f"{rate}_rate_low", f"{rate}_rate_high"]
    table = pq.read_table(curve.path, columns=columns)
    table = table.filter(pc.is_valid(table.column(columns[1])))
    if not len(table):
        return []
    capacities = table.column(CAPACITY).to_numpy()
    first = max(1, int(capacities[0]))
    wanted = np.geomspace(first, max(first, int(capacities[-1])), CURVE_POINTS)
    picked = np.unique(np.searchsorted(capacities, wanted, side="right").clip(1) - 1)
    return [
        {**_at(blocks, size, key), "cache": LRU, "hit_rate": value}
        | ({} if low is None else {"low": low, "high": high})
        for blocks, value, low, high in zip(
            *(table.column(name).take(picked).to_pylist() for name in columns), strict=True
        )
        if blocks
    ]


def _knee(curve: ReportCurve, key: str) -> list[tuple[float, str]]:
    knee, size = curve.manifest["summary"]["knee"], curve.manifest["config"].get("block_bytes")
    if knee is None:
        return []
    blocks = knee["capacity_blocks"]
    text = f"{blocks:,} blocks" if size is None or key == CAPACITY else format_bytes(blocks * size)
    return [(_at(blocks, size, key)[key], f"knee: {text}")]


def _replayed(cells: Sequence[Cell], rate: str, key: str) -> list[Row]:
    paths = [path for path in varied(cells) if path != "capacity"]
    rows = [
        {
            **_at(cell.figures[CAPACITY], cell.block_bytes, key),
            "cache": cell.label(paths) or cell.label(["policy"]) or "replayed",
            "hit_rate": cell.figures[f"rates.{rate}"],
        }
        for cell in cells
    ]
    return sorted(rows, key=lambda row: float(row[key]))


def _bound(cells: Sequence[Cell], rate: str, key: str) -> list[Row]:
    found = {
        _at(cell.figures[CAPACITY], cell.block_bytes, key)[key]: cell.figures[f"belady_rates.{rate}"]
        for cell in cells
        if f"belady_rates.{rate}" in cell.figures
    }
    return [{key: at, "cache": OPT, "hit_rate": found[at]} for at in sorted(found)]


def _infinite(curve: ReportCurve | None, cells: Sequence[Cell], rate: str) -> float | None:
    path = f"infinite_rates.{rate}"
    known = [cell.figures[path] for cell in cells if path in cell.figures]
    if curve is not None:
        known.append(curve.manifest["summary"]["infinite_rates"].get(rate))
    return next((value for value in known if value is not None), None)


def _level(rows: Sequence[Row], value: float | None, key: str) -> list[Row]:
    """A level line over all capacities."""
    if value is None:
        return []
    ends = {min(row[key] for row in rows), max(row[key] for row in rows)}
    return [{key: end, "cache": INFINITE, "hit_rate": value} for end in sorted(ends)]
