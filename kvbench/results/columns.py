"""One served batch as columns: the trace's figures beside the core's counts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.replays.order import COUNTS
from kvbench.replays.timecolumns import TIMES
from kvbench.trace.columns import flags, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.replays.engine import Served

    Int64s = npt.NDArray[np.int64]


def tier_count_names(tiers: Sequence[str]) -> list[str]:
    """Names of the columns of :func:`kvbench.replays.tiered.tier_columns` for tiers of these names."""
    return [
        *(f"hit_{tier}_blocks" for tier in tiers),
        *(f"evicted_from_{tier}_blocks" for tier in tiers),
        *("miss_not_admitted_blocks", "miss_fault_blocks", "overlap_blocks", "lost_blocks", "behind_blocks"),
        *("miss_not_visible_blocks", "miss_declined_blocks"),
    ]


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """``counts`` has the core's columns by name, views of ``rows`` (int32, requests × len(COUNTS)),
    which are good until the next batch is served. All other columns are int64. ``times`` is the matrix of
    :data:`kvbench.replays.timecolumns.TIMES` of a timed replay."""

    batch: pa.RecordBatch
    block_tokens: int | None
    rows: npt.NDArray[np.int32]
    counts: dict[str, npt.NDArray[np.int32]]
    input_tokens: Int64s
    output_tokens: Int64s
    blocks: Int64s
    full_blocks: Int64s
    hit_blocks: Int64s
    infinite_hit_blocks: Int64s
    belady_hit_blocks: Int64s | None
    tier_names: tuple[str, ...] = ()
    held_back_tokens: int = 0
    limits: npt.NDArray[np.int32] | None = None
    times: Int64s | None = None

    @classmethod
    def of(
        cls, served: Served, block_tokens: int | None, tiers: Sequence[str] = (), *, recompute: str = "none"
    ) -> RequestColumns:
        """The columns of ``served``, by a stack of ``tiers`` if there is one."""
        batch = served.batch
        counts = {name: served.rows[:, i] for i, name in enumerate(COUNTS)}
        if served.tiers is not None:
            counts |= {name: served.tiers[:, i] for i, name in enumerate(tier_count_names(tiers))}
        input_tokens = numbers(batch.column("input_tokens")).astype(np.int64)
        has_output = "output_tokens" in batch.schema.names
        full = input_tokens // block_tokens if block_tokens else np.zeros_like(input_tokens)
        blocks = counts["blocks"].astype(np.int64)
        counts |= _recomputed(served, counts)
        return cls(
            batch,
            block_tokens,
            served.rows,
            counts,
            input_tokens,
            numbers(batch.column("output_tokens")).astype(np.int64) if has_output else np.zeros_like(input_tokens),
            blocks,
            np.minimum(full, blocks),
            counts["hit_blocks"].astype(np.int64),
            np.maximum(counts["infinite_hit_blocks"], 0).astype(np.int64),
            None if served.belady is None else served.belady.astype(np.int64),
            tuple(tier_count_names(tiers)) if served.tiers is not None else (),
            int(recompute == "token"),
            served.keys.limits,
            served.times,
        )

    @property
    def arrival_ns(self) -> Int64s:
        """Arrivals: of a timed replay the intended ones on its clock, else those of the trace."""
        if self.times is not None:
            return self.times[:, TIMES.index("arrival_ns")]
        return numbers(self.batch.column("arrival_ns"))

    def only(self, rows: npt.NDArray[np.bool_]) -> RequestColumns:
        """The columns of those requests that are True in ``rows``."""
        if rows.all():
            return self
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        cut: dict[str, Any] = {name: each[rows] for name, each in arrays.items() if isinstance(each, np.ndarray)}
        counts = {name: values[rows] for name, values in self.counts.items()}
        return replace(self, batch=self.batch.filter(flags(rows)), counts=counts, **cut)

    def tokens_of(self, blocks: Int64s) -> Int64s:
        """Tokens in the leading ``blocks`` of each request; a partial last block counts its own."""
        return np.minimum(blocks * (self.block_tokens or 0), self.input_tokens - self.held_back_tokens)

    def routed_tokens(self, name: str) -> Int64s:
        """Tokens of ``best_blocks`` or ``predicted_blocks``, as far as they could have been hits."""
        found = self.counts[name].astype(np.int64)
        return self.tokens_of(found if self.limits is None else np.minimum(found, self.limits))


def _recomputed(served: Served, counts: dict[str, npt.NDArray[np.int32]]) -> dict[str, npt.NDArray[np.int32]]:
    """A resident last block that may not hit is no gap: it is computed again."""
    limits = served.keys.limits
    if limits is None:
        return {"miss_recomputed_blocks": np.zeros(len(served.rows), np.int32)}
    capped = (limits < counts["cacheable_blocks"]) & (counts["hit_blocks"] == limits)
    recomputed = np.where(capped, counts["miss_gap_blocks"], 0).astype(np.int32)
    return {"miss_recomputed_blocks": recomputed, "miss_gap_blocks": counts["miss_gap_blocks"] - recomputed}
