"""The summary of a run again from the rows of its ``requests`` file, as far as rows tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvbench.errors import OutputError
from kvbench.replays.order import COUNTS
from kvbench.replays.timecolumns import MISSING, STATUSES, TIMES
from kvbench.replays.timedfacts import RunFacts
from kvbench.results.columns import RequestColumns, tier_count_names
from kvbench.results.evenness import evenness
from kvbench.results.requests import MISS_REASONS
from kvbench.results.timed import TimedTotals
from kvbench.results.totals import Totals
from kvbench.results.window import Window
from kvbench.serveconfig import parse_warmup, time_ns
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

TIMED_PARTS = (
    *("ttft_ns", "queue_ns", "fetch_ns", "prefill_ns", "tpot_ns", "e2e_ns", "itl_ns"),
    *("requests", "percentile_method", "ttft_shares", "goodput", "throughput", "window_throughput", "work"),
)
"""What rows tell of the ``timed`` part of a summary; steps of workers and links are in no row."""


def summary_of_rows(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of the run whose ``requests`` file this is: the same figures under the same names as in the
    ``--json`` document, without those that no row has (steps, links, what a tier wrote).

    Raises OutputError where the window that figures are of cannot be told.
    """
    with pq.ParquetFile(path) as file:
        sums = _Sums(manifest, set(file.schema_arrow.names), file.metadata.num_rows, str(path))
        for batch in file.iter_batches():
            sums.add(batch)
    return sums.summary()


def window_of(manifest: Mapping[str, Any], rows: int, name: str) -> Window:
    """Which of the ``rows`` requests of a timed replay count. Raises OutputError for a share of rows that are not
    all there."""
    config = manifest["config"]
    window, stop = config.get("window") or {}, config.get("stop") or {}
    warmup = parse_warmup(window["warmup"]) if window.get("warmup") is not None else None
    first, start_ns = 0, time_ns(window.get("start"), "window: start") or 0
    if warmup is not None:
        if warmup.share and (stop.get("converged") is not None or stop.get("time") is not None):
            raise OutputError(
                f"{name}: its figures leave out {window['warmup']} of a trace that was not replayed to its end, whose "
                "rows it does not say; compare what kvbench replay --json printed"
            )
        first = warmup.rows or int(warmup.share * rows)
        start_ns = max(start_ns, warmup.ns)
    return Window(first, start_ns or None, time_ns(window.get("end"), "window: end"))


def times_of(batch: pa.RecordBatch) -> Int64s:
    """The matrix of times (rows × len(TIMES)) of some rows of a timed replay."""
    columns = []
    for name in TIMES:
        column = batch.column(name)
        if name == "status":
            columns.append(numbers(pc.index_in(column, pa.array(STATUSES))).astype(np.int64))
        else:
            columns.append(numbers(column.fill_null(MISSING)).astype(np.int64))
    return np.stack(columns, axis=1)


class _Sums:
    """What a summary is made of, added up batch by batch."""

    def __init__(self, manifest: Mapping[str, Any], columns: set[str], rows: int, name: str) -> None:
        self._config = manifest["config"]
        self._trace = manifest["trace"]
        self._tiers = [tier["name"] for tier in self._config.get("tiers") or ()]
        self._totals = Totals(self._config["workers"])
        self._timed: TimedTotals | None = None
        if "status" in columns:
            slo = {key: time_ns(limit, "slo") for key, limit in (self._config.get("slo") or {}).items()}
            limits = {key: limit for key, limit in slo.items() if limit is not None}
            self._timed = TimedTotals(window_of(manifest, rows, name), limits)
        self._has_bound = True
        self._end_ns = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add some rows."""
        columns = self._columns(batch)
        self._has_bound &= columns.belady_hit_blocks is not None
        if self._timed is not None and columns.times is not None:
            self._end_ns = max(self._end_ns, int(columns.times[:, TIMES.index("end_ns")].max(initial=0)))
            counted = self._timed.add(columns, columns.times, numbers(batch.column("request")))
            columns = columns.only(counted)
        self._totals.add(columns)

    def _columns(self, batch: pa.RecordBatch) -> RequestColumns:
        counts = {name: _count(batch, name) for name in (*COUNTS, "miss_partial_blocks", "miss_recomputed_blocks")}
        counts["cacheable_blocks"] = counts["blocks"] - counts["miss_partial_blocks"]
        # Totals take the core's counts, where what is computed again is a gap.
        core = counts | {"miss_gap_blocks": counts["miss_gap_blocks"] + counts["miss_recomputed_blocks"]}
        tier_names = tuple(tier_count_names(self._tiers)) if self._tiers else ()
        counts |= {name: _count(batch, name) for name in tier_names}
        belady = batch.column("belady_hit_blocks")
        return RequestColumns(
            batch,
            self._trace["block_tokens"],
            np.stack([core[name] for name in COUNTS], axis=1),
            counts,
            _whole(batch, "input_tokens"),
            _whole(batch, "output_tokens"),
            counts["blocks"].astype(np.int64),
            _whole(batch, "full_blocks"),
            counts["hit_blocks"].astype(np.int64),
            counts["infinite_hit_blocks"].astype(np.int64),
            None if belady.null_count else numbers(belady).astype(np.int64),
            tier_names,
            int(self._config["recompute"] == "token"),
            times=times_of(batch) if self._timed is not None else None,
        )

    def summary(self) -> dict[str, Any]:
        """The figures of all rows."""
        totals, counts = self._totals, self._totals.counts
        has_ids = self._trace["ids"] is not None
        has_seen = has_ids and self._config["seen"] == "exact"
        found: dict[str, Any] = {
            "tokens": {"input": totals.input_tokens, "output": totals.output_tokens},
            "rates": totals.rates(totals.hits, known=has_ids),
            "belady_rates": totals.rates(totals.belady, known=has_ids and self._has_bound),
            "infinite_rates": totals.rates(totals.infinite, known=has_seen),
            "workers": self._workers(),
        }
        if has_ids:
            found["blocks"] = {"asked": counts["blocks"], "full": totals.full_blocks} | {
                name: counts[f"{name}_blocks"] for name in ("hit", "stored", "evicted", "truncated")
            }
            found["misses"] = self._misses() if has_seen else {}
            found["tiers"] = [{"tier": tier, "hit_blocks": counts.get(f"hit_{tier}_blocks", 0)} for tier in self._tiers]
        if self._timed is None:
            return {"requests": {"done": totals.requests}, **found}
        record = self._timed.record(RunFacts(self._end_ns, "", ()))
        statuses = self._timed.statuses
        return {
            "requests": {name: statuses[name] for name in ("done", "unfinished")} | {"counted": totals.requests},
            **found,
            "timed": {name: record[name] for name in TIMED_PARTS},
        }

    def _misses(self) -> dict[str, int]:
        counts = self._totals.counts | {"miss_partial_blocks": self._totals.partial_blocks}
        return {
            name.removeprefix("miss_").removesuffix("_blocks"): counts[name] for name in MISS_REASONS if name in counts
        }

    def _workers(self) -> dict[str, Any]:
        totals = self._totals
        loads = (totals.worker_requests, totals.worker_input_tokens, totals.worker_hit_tokens)
        each = [
            {"worker": worker, "requests": requests, "input_tokens": tokens, "hit_tokens": hits}
            for worker, (requests, tokens, hits) in enumerate(zip(*(load.tolist() for load in loads), strict=True))
        ]
        return {"count": totals.workers, **evenness(totals), "each": each}


def _count(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int32]:
    """A column of counts; 0 where it is null or missing."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int32)
    return numbers(batch.column(name)).astype(np.int32)


def _whole(batch: pa.RecordBatch, name: str) -> Int64s:
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64)
    return numbers(batch.column(name)).astype(np.int64)
