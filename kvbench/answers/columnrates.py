"""Hits by the values of a column of the trace, such as the tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.results.neighbours import NAMELESS
from kvbench.results.rates import ratio

if TYPE_CHECKING:
    from kvbench.trace.reader import Trace


def column_rates(requests: pa.Table, trace: Trace, column: str) -> list[dict[str, Any]]:
    """A row for each value of ``column``, in their order, of ``requests``, which a replay of ``trace`` kept."""
    names = pa.chunked_array([batch.column(column) for batch in trace.batches()]).fill_null(NAMELESS)
    table = requests.select(["input_tokens", "hit_tokens"]).append_column(column, names)
    sums = table.group_by(column).aggregate([("input_tokens", "count"), ("input_tokens", "sum"), ("hit_tokens", "sum")])
    return [
        {
            column: row[column],
            "requests": row["input_tokens_count"],
            "input_tokens": row["input_tokens_sum"],
            "hit_tokens": row["hit_tokens_sum"],
            "token_rate": ratio(row["hit_tokens_sum"], row["input_tokens_sum"]),
        }
        for row in sums.sort_by(column).to_pylist()
    ]
