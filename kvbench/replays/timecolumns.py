"""What a timed replay says of each request: the columns of its matrix of times, and how requests end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME_COLUMNS: Mapping[str, str] = {
    "arrival_ns": "intended arrival on the simulated clock",
    "routed_ns": "a worker was chosen",
    "admitted_ns": "first looked up by the worker",
    "fetch_start_ns": "its fetch from lower tiers began: the last one, as a preempted request fetches again",
    "fetch_end_ns": "that fetch ended",
    "prefill_start_ns": "the first step that computes tokens of it began",
    "first_token_ns": "its first token was there: end of the step that completes the prefill",
    "end_ns": "its last token was there, and with blocking stores its blocks were written",
    "queue_ns": "part of TTFT: waiting",
    "fetch_ns": "part of TTFT: fetching from lower tiers",
    "prefill_ns": "part of TTFT: computing the prompt",
    "computed_tokens": "tokens of the prompt that were computed, again after a preemption included",
    "generated_tokens": "tokens of the answer",
    "preemptions": "times that it lost its blocks and had to start anew",
    "declined_blocks": "blocks hit in lower tiers that were computed instead of fetched",
    "readmitted_blocks": "blocks found again after a preemption, which count as no hit",
    "need_blocks": "GPU blocks that a rejected prompt would need",
    "status": "how it ended: `done`, `rejected` or `unfinished`",
}
"""Column and what it says. In the matrix all are int64, times from the origin of the simulated clock, -1 where
there is no value; ``status`` is an index of :data:`STATUSES`. Queue, fetch and prefill add up to
``first_token_ns - arrival_ns``."""

TIMES = tuple(TIME_COLUMNS)
"""The columns in their order."""

STATUSES = ("done", "rejected", "unfinished")
DONE, REJECTED, UNFINISHED = range(len(STATUSES))

MISSING = -1
"""What stands where there is no value."""
