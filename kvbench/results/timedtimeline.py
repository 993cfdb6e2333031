"""The ``timeline`` table of a timed replay: rows for stores, workers and links at each sample (semantics §12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvbench.replays.timedfacts import RECENT_REQUESTS
from kvbench.results.percentiles import percentile
from kvbench.results.rates import ratio
from kvbench.results.timeline import TIMELINE_SCHEMA, store_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.replays.tierplan import TierPlan
    from kvbench.replays.tiers import Store
    from kvbench.replays.timedfacts import LinkSample, TimedSample, WorkerSample

WORKER_COUNTS = {
    "waiting": "requests that wait",
    "fetching": "requests whose blocks are being fetched",
    "ready": "requests that are fetched, and not started",
    "prefilling": "requests whose prompt is being computed",
    "decoding": "requests whose answer is",
    "steps": "steps since the start",
}
"""Columns of the rows of workers, without those that others have, too."""

TIMED_COLUMNS = {
    "kind": "what the row is of: a `store`, a `worker` or a `link`",
    "requests": "requests that had arrived",
    "time_ns": "on the simulated clock",
    "name": "of the tier or the link; null of a worker",
    "number": "of the store, the worker, or the link among those of its name",
    "busy_ns": "time in steps, or with a transfer under way, since the start",
    "busy_share": "the same since the sample before, over the time since then; null in the first one",
    "private_blocks": "GPU blocks of running requests that are no cache entries: of a worker, or a store of the GPU",
    **WORKER_COUNTS,
    "recent_ttft_p95_ns": f"95th percentile (linear) of the TTFT of the worker's last {RECENT_REQUESTS} requests; null "
    "until there are so many",
    "moved_bytes": "bytes that the link has moved since the start",
    "in_flight": "transfers under way",
}
"""Columns of a timed replay's timeline, and what they say; those of stores follow."""

TIMED_TIMELINE_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("requests", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("number", pa.int32(), nullable=False),
        *(
            pa.field(name, pa.float64() if name.endswith(("share", "p95_ns")) else pa.int64())
            for name in list(TIMED_COLUMNS)[5:]
        ),
        *(pa.field(each.name, each.type) for each in list(TIMELINE_SCHEMA)[4:]),
    ]
)
"""A row for each store, worker and link at each sample; columns that have no meaning for its kind are null. Pinned,
reusable, private and free blocks of a store add up to its capacity."""


class TimedTimeline:
    """Makes the rows of a timed replay's timeline; samples come in the order of their times."""

    def __init__(self, tiers: Sequence[TierPlan], capacities: Sequence[int | None]) -> None:
        self._tiers = tiers
        self._capacities = capacities
        self._before: dict[tuple[str, str | None, int], tuple[int, int]] = {}

    def batch(self, samples: Sequence[TimedSample]) -> pa.RecordBatch:
        """The rows of ``samples``."""
        rows = [
            {"requests": sample.requests, "time_ns": sample.time_ns, **row}
            for sample in samples
            for row in (
                *(self._store(store, sample) for store in sample.stores),
                *(self._worker(worker, sample.time_ns) for worker in sample.workers),
                *(self._link(link, sample.time_ns) for link in sample.links),
            )
        ]
        return pa.RecordBatch.from_pylist(rows, schema=TIMED_TIMELINE_SCHEMA)

    def _store(self, store: Store, sample: TimedSample) -> dict[str, Any]:
        tier = self._tiers[store.level]
        row = store_row(store, tier, self._capacities[store.level])
        row |= {"kind": "store", "name": row.pop("tier"), "number": row.pop("store")}
        if store.level == 0:
            first = store.index // tier.ranks * tier.group
            users = range(first, first + tier.group)
            row["private_blocks"] = sum(each.private_blocks for each in sample.workers if each.worker in users)
            if row["free_blocks"] is not None:
                row["free_blocks"] -= row["private_blocks"]
        return row

    def _worker(self, worker: WorkerSample, time_ns: int) -> dict[str, Any]:
        recent = np.array(worker.recent_ttft_ns, np.int64)
        return {
            "kind": "worker",
            "number": worker.worker,
            **self._busy("worker", None, worker.worker, time_ns, worker.busy_ns),
            "private_blocks": worker.private_blocks,
            **{name: getattr(worker, name) for name in WORKER_COUNTS},
            "recent_ttft_p95_ns": percentile(recent, 95) if len(recent) >= RECENT_REQUESTS else None,
        }

    def _link(self, link: LinkSample, time_ns: int) -> dict[str, Any]:
        return {
            "kind": "link",
            "name": link.name,
            "number": link.store,
            **self._busy("link", link.name, link.store, time_ns, link.busy_ns),
            "moved_bytes": link.moved_bytes,
            "in_flight": link.in_flight,
        }

    def _busy(self, kind: str, name: str | None, number: int, time_ns: int, busy_ns: int) -> dict[str, Any]:
        key = (kind, name, number)
        since_ns, before_ns = self._before.get(key, (time_ns, busy_ns))
        self._before[key] = (time_ns, busy_ns)
        return {"busy_ns": busy_ns, "busy_share": ratio(busy_ns - before_ns, time_ns - since_ns)}
