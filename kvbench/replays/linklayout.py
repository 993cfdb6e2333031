"""Which links there are in a timed replay, and which of them the transfers of each tier and worker pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.replays.plan import Plan
    from kvbench.replays.serveplan import LinkPlan
    from kvbench.replays.tierplan import TierPlan

READ, WRITE = "read", "write"
"""The directions: towards the GPU, and away from it."""


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """One direction of one link.

    ``name``   of the tier whose device it is, or of the link.
    ``store``  number of the group of workers that share it: the tier's store where each worker has one.
    ``concurrent_operations``  None: any number.
    """

    name: str
    direction: str
    store: int
    bandwidth_bytes_per_s: int
    latency_ns: int
    sharing: str
    concurrent_operations: int | None


@dataclass(frozen=True, slots=True)
class TierPaths:
    """What the transfers between one tier and the GPU pass.

    ``reads``, ``writes``  for each worker, positions in :attr:`LinkLayout.links` in the order in which they
                   are passed; none: transfers take no time.
    ``serial``     one after the other; else pipelined.
    ``chunk_bytes``  of one operation, all ranks of a worker together; 0 where no transfer takes time.
    """

    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    serial: bool
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class LinkLayout:
    """All links, and the paths of each tier, the GPU's first (it has none)."""

    links: tuple[LinkFacts, ...]
    tiers: tuple[TierPaths, ...]


def link_layout(plan: Plan, workers: int) -> LinkLayout:
    """The links of a timed ``plan`` of ``workers`` workers.

    A store's device has one link for each direction. Ranks that have a store each move their parts at
    the same time, over devices of their own: together they are one device, as many times as fast.
    """
    assert plan.serving is not None
    links: list[LinkFacts] = []
    named = {link.name: _add(links, workers, link.group, _named(link)) for link in plan.serving.links}
    tiers = []
    for level, tier in enumerate(plan.tiers or ()):
        passed: list[list[dict[str, int]]] = []
        if level and tier.device is not None:
            passed.append(_add(links, workers, tier.group, _device(tier)))
        passed += [named[name] for name in tier.config.path or ()]
        tiers.append(
            TierPaths(
                tuple(tuple(link[worker][READ] for link in passed) for worker in range(workers)),
                tuple(tuple(link[worker][WRITE] for link in reversed(passed)) for worker in range(workers)),
                tier.config.transfer == "serial",
                (tier.chunk_bytes or 0) * tier.ranks if passed else 0,
            )
        )
    return LinkLayout(tuple(links), tuple(tiers))


def _add(
    links: list[LinkFacts], workers: int, group: int, make: Callable[[str, int], LinkFacts]
) -> list[dict[str, int]]:
    """Append both directions of a link for each ``group`` of workers; the positions of each worker's."""
    first = len(links)
    for store in range(-(-workers // group)):
        links += [make(READ, store), make(WRITE, store)]
    places = [first + 2 * (worker // group) for worker in range(workers)]
    return [{READ: place, WRITE: place + 1} for place in places]


def _named(link: LinkPlan) -> Callable[[str, int], LinkFacts]:
    def make(direction: str, store: int) -> LinkFacts:
        reads = direction == READ
        return LinkFacts(
            link.name,
            direction,
            store,
            link.read_bandwidth_bytes_per_s if reads else link.write_bandwidth_bytes_per_s,
            link.read_latency_ns if reads else link.write_latency_ns,
            link.sharing,
            link.concurrent_operations,
        )

    return make


def _device(tier: TierPlan) -> Callable[[str, int], LinkFacts]:
    device = tier.device
    assert device is not None

    def make(direction: str, store: int) -> LinkFacts:
        reads = direction == READ
        bandwidth = device.read_bandwidth_bytes_per_s if reads else device.write_bandwidth_bytes_per_s
        return LinkFacts(
            tier.name,
            direction,
            store,
            bandwidth * tier.ranks,
            device.read_latency_ns if reads else device.write_latency_ns,
            tier.config.sharing or "fair",
            device.concurrent_operations,
        )

    return make
