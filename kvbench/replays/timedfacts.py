"""What a timed replay says of its workers and links: samples while it runs, and counts of the whole run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.replays.tiers import Store

RECENT_REQUESTS = 50
"""First tokens of a worker that its recent latency is taken over."""


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """One worker at some moment.

    ``waiting`` … ``decoding``  requests in each state.
    ``private_blocks``   GPU blocks of running requests that are no cache entries.
    ``steps``, ``busy_ns``  so far: steps, and the time spent in them.
    ``recent_ttft_ns``   TTFT of the worker's last requests with a first token, at most :data:`RECENT_REQUESTS`,
                         in any order.
    """

    worker: int
    waiting: int
    fetching: int
    ready: int
    prefilling: int
    decoding: int
    private_blocks: int
    steps: int
    busy_ns: int
    recent_ttft_ns: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class LinkSample:
    """One link at some moment: bytes and busy time so far, and transfers under way. ``store`` is the number of
    the tier's store that it belongs to, or of the link among those of its name."""

    name: str
    store: int
    moved_bytes: int
    busy_ns: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class TimedSample:
    """Everything at ``time_ns`` of the simulated clock, when ``requests`` had arrived."""

    requests: int
    time_ns: int
    stores: Sequence[Store]
    workers: Sequence[WorkerSample]
    links: Sequence[LinkSample]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What one worker did in the whole run; tokens are those computed in its steps."""

    worker: int
    steps: int
    busy_ns: int
    prefill_tokens: int
    decode_tokens: int
    preemptions: int
    rebuilds: int


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What one link moved in the whole run, and the bandwidth it is configured to have."""

    name: str
    store: int
    moved_bytes: int
    busy_ns: int
    operations: int
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A whole run: when the simulated clock stopped and why.

    ``stop``       ``all requests done``, ``time limit``, ``row limit``, ``converged`` or ``no progress``.
    ``diagnosis``  what stood still, with ``no progress``.
    ``lost_writes``  chunks on their way into lower tiers that left the GPU before they were written.
    """

    end_ns: int
    stop: str
    workers: Sequence[WorkerFacts]
    links: Sequence[LinkFacts] = field(default=())
    diagnosis: str | None = None
    lost_writes: int = 0
