"""The rows of a ``requests`` file added up: by session, by worker, or by slice of time (user report J04)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import ConfigError, OutputError
from kvbench.results.columnunits import unit_of
from kvbench.results.fromrows import window_of
from kvbench.results.measured import LATENCIES
from kvbench.results.percentiles import distribution
from kvbench.results.runfile import read_requests
from kvbench.serveconfig import time_ns
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

GRAINS: Mapping[str, str] = {
    "request": "the rows as they are",
    "session": "a row for each session, by its first request",
    "worker": "a row for each worker that served any",
    "TIME": "a row for each slice of so much time (60s, 1h) from the first to the last arrival, empty ones included",
}
"""What rows can be added up by."""

MAX_SLICES = 1_000_000
STATISTICS = ("mean", "p50", "p99")
NOT_SUMMED = ("need_blocks",)
RATES = {"token_rate": ("hit_tokens", "input_tokens"), "block_rate": ("hit_blocks", "blocks")}


@dataclass(frozen=True, slots=True)
class _Groups:
    """``columns`` name the groups; ``codes`` has the group of each row."""

    columns: dict[str, pa.Array]
    codes: Int64s

    @property
    def count(self) -> int:
        return len(next(iter(self.columns.values())))


def roll_up(path: Path, by: str) -> tuple[pa.Table, dict[str, Any]]:
    """The requests of ``path`` by ``by``, one of :data:`GRAINS`, and the manifest of their run.

    Requests count as in the run's summary: those of its window that were looked up. A row has ``requests``, the sums
    of all columns in tokens and blocks, ``token_rate`` and ``block_rate`` of these sums, the first and the last
    arrival, and of a timed replay ``done_requests`` with mean and percentiles (linear) of their latencies. What
    nothing is known of is null. Raises OutputError for a file that has no requests, and ConfigError for an unknown
    ``by``.
    """
    table, manifest = read_requests(path)
    if by == "request":
        return table, manifest
    is_timed = "status" in table.column_names
    if is_timed:
        counted = window_of(manifest, len(table), str(path)).counted(_int64s(table, "request"), _arrivals(table))
        table = table.filter(pa.array(counted & np.asarray(table["admitted_ns"].is_valid())))
    groups = _groups(table, by, str(path))
    columns = groups.columns | {"requests": pa.array(np.bincount(groups.codes, minlength=groups.count))}
    for field in table.schema:
        if unit_of(field.name) in ("tokens", "blocks") and field.name not in NOT_SUMMED:
            columns[field.name] = _sums(table[field.name], groups)
    for name, (part, whole) in RATES.items():
        columns[name] = _ratio(columns[part], columns[whole])
    columns |= _arrival_range(_arrivals(table), groups)
    if is_timed:
        columns |= _latencies(table, groups)
    return pa.table(columns), manifest


def _groups(table: pa.Table, by: str, name: str) -> _Groups:
    if by == "session":
        if "session_id" not in table.column_names:
            raise OutputError(f"{name} has no session_id: its trace has no sessions")
        return _distinct("session_id", table["session_id"])
    if by == "worker":
        return _distinct("worker", table["worker"])
    try:
        length = time_ns(by, "--by", positive=True)
    except ConfigError:
        raise ConfigError(f"--by {by}: give request, session, worker, or a time such as 60s") from None
    assert length is not None
    slices = _arrivals(table) // length
    first, last = (int(slices.min()), int(slices.max())) if len(slices) else (0, -1)
    if last - first >= MAX_SLICES:
        raise ConfigError(f"--by {by}: makes {last - first + 1:,} slices, more than {MAX_SLICES:,}; give a longer time")
    starts = np.arange(first, last + 1, dtype=np.int64) * length
    return _Groups({"start_ns": pa.array(starts), "end_ns": pa.array(starts + length)}, slices - first)


def _distinct(name: str, column: pa.ChunkedArray) -> _Groups:
    """A group for each value, null being one, in the order in which they first come."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return _Groups({name: encoded.dictionary}, np.asarray(encoded.indices).astype(np.int64))


def _sums(column: pa.ChunkedArray, groups: _Groups) -> pa.Array:
    """Exact while they stay below 2^53; null of a group without a value."""
    known = np.asarray(column.is_valid())
    codes = groups.codes[known]
    values = np.asarray(column.drop_null()).astype(np.float64)
    sums = np.bincount(codes, weights=values, minlength=groups.count).astype(np.int64)
    return pa.array(sums, mask=np.bincount(codes, minlength=groups.count) == 0)


def _ratio(part: pa.Array, whole: pa.Array) -> pa.Array:
    parts, wholes = (each.cast(pa.float64()).fill_null(np.nan).to_numpy() for each in (part, whole))
    with np.errstate(invalid="ignore", divide="ignore"):
        return pa.array(parts / wholes, mask=np.isnan(parts) | np.isnan(wholes) | (wholes == 0))


def _arrival_range(arrivals: Int64s, groups: _Groups) -> dict[str, pa.Array]:
    first = np.full(groups.count, np.iinfo(np.int64).max)
    last = np.full(groups.count, np.iinfo(np.int64).min)
    np.minimum.at(first, groups.codes, arrivals)
    np.maximum.at(last, groups.codes, arrivals)
    ends = {"first_arrival_ns": first, "last_arrival_ns": last}
    return {name: pa.array(values, mask=first > last) for name, values in ends.items()}


def _latencies(table: pa.Table, groups: _Groups) -> dict[str, pa.Array]:
    done = np.asarray(pc.equal(table["status"], "done"))
    columns = {"done_requests": pa.array(np.bincount(groups.codes[done], minlength=groups.count))}
    for name in LATENCIES:
        column = table[f"{name}_ns"]
        known = np.asarray(column.is_valid()) & done
        values = column.filter(pa.array(known)).cast(pa.float64()).to_numpy()
        found = [distribution(each) for each in _split(values, groups.codes[known], groups.count)]
        for statistic in STATISTICS:
            columns[f"{name}_{statistic}_ns"] = pa.array([each[statistic] for each in found], pa.float64())
    return columns


def _split(values: npt.NDArray[np.float64], codes: Int64s, count: int) -> Iterator[npt.NDArray[np.float64]]:
    """The values of each group."""
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(1, count))
    yield from np.split(values[order], ends) if count else ()


def _arrivals(table: pa.Table) -> Int64s:
    return _int64s(table, "arrival_ns")


def _int64s(table: pa.Table, name: str) -> Int64s:
    return numbers(table[name].combine_chunks()).astype(np.int64)
