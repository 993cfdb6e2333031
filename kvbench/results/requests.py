"""The ``requests`` table: one row a request (semantics §12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvbench.results.timetable import TIME_FIELDS, TRACE_ARRIVAL, time_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from kvbench.results.columns import RequestColumns

CARRIED = (
    *("request_id", "session_id", "turn", "model", "adapter", "tenant"),
    *("arrival_ns", "input_tokens", "output_tokens"),
)
"""Columns that are carried over from the trace, where it has them."""

MISS_REASONS = {
    "miss_first_seen_blocks": "nobody asked for it before (compulsory)",
    "miss_evicted_blocks": "it was stored once and has been evicted since",
    "miss_other_worker_blocks": "another worker holds it",
    "miss_gap_blocks": "it is resident, but an earlier block of the request is not",
    "miss_recomputed_blocks": "it is resident, and the last one of a fully cached prompt, which is computed again",
    "miss_truncated_blocks": "its last request left no room for it",
    "miss_not_admitted_blocks": "it was asked for before, and no tier had taken it",
    "miss_fault_blocks": "a fault lost it or kept it from being stored",
    "miss_not_visible_blocks": "it was being computed, fetched or written (timed replay)",
    "miss_declined_blocks": "a lower tier holds it, and computing it was sooner than fetching it (timed replay)",
    "miss_partial_blocks": "it is shorter than a block, and tails are dropped",
}
"""Why a block that was not hit was missing; hits and misses add up to the blocks asked for."""


FOUND_REASONS = ("miss_gap_blocks", "miss_recomputed_blocks", "miss_declined_blocks")
"""Reasons of blocks that are resident, which need no memory of what was asked for before."""

TIER_REASONS = ("miss_not_admitted_blocks", "miss_fault_blocks")
"""Reasons that there are with a stack of tiers only."""

TIMED_REASONS = ("miss_not_visible_blocks", "miss_declined_blocks")
"""Reasons that there are in timed replay only."""


@dataclass(frozen=True, slots=True)
class RequestColumn:
    """One computed column: ``values`` gives it; ``needs`` says what must be known for it
    (``ids``, ``seen``, ``belady``, ``workers``), else it is null."""

    name: str
    values: Callable[[RequestColumns], Any]
    help: str
    needs: str = "ids"


def _count(name: str) -> Callable[[RequestColumns], Any]:
    return lambda columns: columns.counts[name]


COMPUTED: tuple[RequestColumn, ...] = (
    RequestColumn("worker", _count("worker"), "who served it", needs=""),
    RequestColumn("blocks", _count("blocks"), "blocks asked for: its ids, a partial last one included"),
    RequestColumn("full_blocks", lambda c: c.full_blocks.astype(np.int32), "full blocks among them"),
    RequestColumn("hit_blocks", _count("hit_blocks"), "leading blocks that were resident"),
    RequestColumn("hit_tokens", lambda c: c.tokens_of(c.hit_blocks), "tokens in them"),
    RequestColumn("resident_blocks", _count("resident_blocks"), "blocks that were resident, wherever they stand"),
    RequestColumn(
        "infinite_hit_blocks", _count("infinite_hit_blocks"), "leading blocks ever asked for before", needs="seen"
    ),
    RequestColumn(
        "belady_hit_blocks", lambda c: c.belady_hit_blocks, "leading blocks that the Belady bound hits", needs="belady"
    ),
    RequestColumn("best_blocks", _count("best_blocks"), "longest prefix that any worker held", needs="workers"),
    RequestColumn(
        "predicted_blocks", _count("predicted_blocks"), "prefix the index saw at the chosen worker", needs="workers"
    ),
    RequestColumn("stored_blocks", _count("stored_blocks"), "blocks stored"),
    RequestColumn("evicted_blocks", _count("evicted_blocks"), "blocks evicted to make room"),
    RequestColumn("truncated_blocks", _count("truncated_blocks"), "blocks left out because they do not fit"),
    *(
        RequestColumn(name, _count(name), text, needs="ids" if name in FOUND_REASONS else "seen")
        for name, text in MISS_REASONS.items()
        if name not in ("miss_partial_blocks", "miss_other_worker_blocks", *TIER_REASONS, *TIMED_REASONS)
    ),
    RequestColumn(
        "miss_other_worker_blocks",
        _count("miss_other_worker_blocks"),
        MISS_REASONS["miss_other_worker_blocks"],
    ),
    RequestColumn(
        "miss_partial_blocks",
        lambda c: (c.blocks - c.counts["cacheable_blocks"]).astype(np.int32),
        MISS_REASONS["miss_partial_blocks"],
    ),
)


ROUTED: tuple[RequestColumn, ...] = (
    RequestColumn("best_tokens", lambda c: c.routed_tokens("best_blocks"), "tokens of the longest prefix anywhere"),
    RequestColumn(
        "predicted_tokens",
        lambda c: c.routed_tokens("predicted_blocks"),
        "tokens that the index saw at the chosen worker",
    ),
)
"""Columns of runs with several workers; ``hit_tokens`` is what was delivered (semantics §8.4)."""


def tier_request_columns(tiers: Sequence[str]) -> tuple[RequestColumn, ...]:
    """The columns that a stack of ``tiers`` adds."""
    return (
        *(
            RequestColumn(f"hit_{tier}_blocks", _count(f"hit_{tier}_blocks"), f"hit blocks that {tier} delivered")
            for tier in tiers
        ),
        *(
            RequestColumn(
                f"evicted_from_{tier}_blocks",
                _count(f"evicted_from_{tier}_blocks"),
                f"of the evicted ones, those that left {tier} last",
                needs="seen",
            )
            for tier in tiers
        ),
        *(RequestColumn(name, _count(name), MISS_REASONS[name], needs="seen") for name in TIER_REASONS),
        RequestColumn("overlap_blocks", _count("overlap_blocks"), "blocks read again with a slower tier's chunk"),
        RequestColumn("lost_blocks", _count("lost_blocks"), "hits claimed, and given back after a failing get"),
        RequestColumn(
            "behind_blocks",
            _count("behind_blocks"),
            "leading blocks that the tiers behind the first hold alone",
        ),
    )


TIMED: tuple[RequestColumn, ...] = tuple(
    RequestColumn(name, _count(name), MISS_REASONS[name], needs="ids" if name in FOUND_REASONS else "seen")
    for name in TIMED_REASONS
)
"""Columns that timed replay adds to those of its tiers."""


class RequestTable:
    """Makes the record batches of the ``requests`` table.

    ``known``  what is known of this run: any of ``ids``, ``seen``, ``belady``, ``workers``.
    ``tiers``  names of a stack's tiers.
    ``timed``  whether it is of a timed replay: ``arrival_ns`` is then that of the simulated clock.
    ``moved``  whether that may differ from the trace's, which is then in ``trace_arrival_ns``.
    """

    def __init__(
        self,
        trace_schema: pa.Schema,
        known: set[str],
        tiers: Sequence[str] = (),
        *,
        timed: bool = False,
        moved: bool = False,
    ) -> None:
        self.known = known | {""}
        routed = ROUTED if "workers" in known else ()
        self.computed = (
            *(*COMPUTED, *routed),
            *(tier_request_columns(tiers) if tiers else ()),
            *(TIMED if timed else ()),
        )
        self.carried = [trace_schema.field(name) for name in CARRIED if name in trace_schema.names]
        self._timed = timed
        self._moved = timed and moved
        kinds = {name: pa.int64() for name in ("hit_tokens", "best_tokens", "predicted_tokens")}
        self.schema = pa.schema(
            [
                pa.field("request", pa.int64(), nullable=False),
                *self.carried,
                *(pa.field(column.name, kinds.get(column.name, pa.int32())) for column in self.computed),
                *([pa.field(TRACE_ARRIVAL, pa.int64())] if self._moved else []),
                *(TIME_FIELDS if timed else []),
            ]
        )

    def batch(self, columns: RequestColumns, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The rows of one served batch; ``numbers`` of its requests are those of the replay."""
        rows = columns.batch.num_rows
        arrays = [pa.array(numbers)]
        arrays += [
            pa.array(columns.arrival_ns) if field.name == "arrival_ns" else columns.batch.column(field.name)
            for field in self.carried
        ]
        for column in self.computed:
            kind = self.schema.field(column.name).type
            if column.needs in self.known:
                arrays.append(pa.array(np.ascontiguousarray(column.values(columns)), kind))
            else:
                arrays.append(pa.nulls(rows, kind))
        if self._moved:
            arrays.append(columns.batch.column("arrival_ns"))
        if self._timed and columns.times is not None:
            arrays += time_arrays(columns.times)
        return pa.record_batch(arrays, schema=self.schema)
