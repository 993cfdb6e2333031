"""The rows of a curve: as dictionaries for people, as record batches for the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvbench.replays.distances import FIGURES
from kvbench.results.curverates import named, rates_of
from kvbench.results.rates import RATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kvbench.results.curverates import RateTable

    Int64s = npt.NDArray[np.int64]

BATCH_ROWS = 65_536
GIB = 2**30
MARGIN_BLOCKS = 1_000
COUNTS = ("hit_blocks", "hit_full_blocks", "hit_tokens", "hit_requests", "resident_blocks")

CURVE_SCHEMA: Any = pa.schema(
    [
        pa.field("capacity_blocks", pa.int64(), nullable=False),
        pa.field("capacity_bytes", pa.int64()),
        *(pa.field(name, pa.int64()) for name in COUNTS),
        *(pa.field(f"{name}_rate", pa.float64()) for name in RATES),
        *(pa.field(f"{name}_rate_{end}", pa.float64()) for name in RATES for end in ("low", "high")),
    ]
)
"""Counts are those of the requests that were counted: all, or the sample's. ``_low`` and ``_high`` are the
error bars of a sample, null for a whole trace."""


def curve_rows(table: RateTable, capacities: Int64s, block_bytes: int | None) -> list[dict[str, Any]]:
    """One dictionary for each of the rising capacities. ``marginal_token_rate`` is what the token rate
    gains over the row before (nothing, before the first) for each GiB, or for each 1,000 blocks where
    the size of a block is not known."""
    values = table.values(capacities)
    bounds = table.bounds(capacities)
    token = values[:, list(RATES).index("token")]
    unit = GIB / block_bytes if block_bytes else MARGIN_BLOCKS
    gains = np.diff(token, prepend=0.0) / np.diff(capacities, prepend=0) * unit
    rows = []
    for at, capacity in enumerate(capacities.tolist()):
        row: dict[str, Any] = {"capacity_blocks": capacity}
        if block_bytes:
            row["capacity_bytes"] = capacity * block_bytes
        row["rates"] = named(values[at])
        if bounds is not None:
            row["rates_low"], row["rates_high"] = named(bounds[0][at]), named(bounds[1][at])
        row["marginal_token_rate"] = None if np.isnan(gains[at]) else float(gains[at])
        row["marginal_of"] = "GiB" if block_bytes else f"{MARGIN_BLOCKS:,} blocks"
        rows.append(row)
    return rows


def curve_batches(table: RateTable, capacities: Int64s, block_bytes: int | None) -> Iterator[pa.RecordBatch]:
    """The rising capacities as record batches of CURVE_SCHEMA."""
    for start in range(0, len(capacities), BATCH_ROWS):
        yield _batch(table, capacities[start : start + BATCH_ROWS], block_bytes)


def _batch(table: RateTable, capacities: Int64s, block_bytes: int | None) -> pa.RecordBatch:
    figures = table.figures(capacities)
    by_name = dict(zip(FIGURES, figures.T, strict=True))
    full = by_name["hit_blocks"] - by_name["tail_blocks"]
    counts = {
        "hit_blocks": by_name["hit_blocks"],
        "hit_full_blocks": full,
        "hit_tokens": full * table.found.block_tokens + by_name["tail_tokens"],
        "hit_requests": by_name["any_requests"],
        "resident_blocks": by_name["resident_blocks"],
    }
    rates = rates_of(figures, table.found.counted, table.found.block_tokens)
    bounds = table.bounds(capacities)
    nothing = pa.nulls(len(capacities), pa.float64())
    columns = [
        pa.array(capacities),
        pa.array(capacities * block_bytes) if block_bytes else pa.nulls(len(capacities), pa.int64()),
        *(pa.array(counts[name].astype(np.int64)) for name in COUNTS),
        *(pa.array(rates[:, at], from_pandas=True) for at in range(len(RATES))),
        *(
            pa.array(end[:, at], from_pandas=True) if bounds is not None else nothing
            for at in range(len(RATES))
            for end in (bounds if bounds is not None else (nothing, nothing))
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CURVE_SCHEMA)
