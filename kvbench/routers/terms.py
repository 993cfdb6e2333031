"""Prefix terms and load terms that router policies are composed of.

A term is an array with a figure a worker. Every term takes what the router knows, however old that
is; signals and their ages are settings of the run, not of the policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.routing import LoadView

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Int32s = npt.NDArray[np.int32]


class Load:
    """What a router knows of the load: read-only int64 arrays with a figure a worker, the same objects all
    along, their contents those of now.

    By the router's own count, at once: ``requests``, ``tokens`` and ``blocks`` of prompts in flight; of the
    requests those ``prefilling``, and the ``prefill_blocks`` of these, less what the index had predicted to hit.
    Other routers' requests are in it once they have been heard of.

    Published by the workers, ``age_requests`` ago: requests ``waiting`` (they are prefilled) and
    ``running`` (they decode), ``used_blocks`` of requests in flight, and ``kv_usage``, their share of the
    capacity (float64, at most 1; all 0 without bound).

    Since the start: ``assigned_requests``, ``assigned_tokens``, ``assigned_blocks``.
    """

    def __init__(self, view: LoadView, capacity_blocks: int | None) -> None:
        self._view = view
        self._capacity = capacity_blocks
        self.requests: Ints = np.asarray(view.requests)
        self.tokens: Ints = np.asarray(view.tokens)
        self.blocks: Ints = np.asarray(view.blocks)
        self.prefilling: Ints = np.asarray(view.prefilling)
        self.prefill_blocks: Ints = np.asarray(view.prefill_blocks)
        self.waiting: Ints = np.asarray(view.waiting)
        self.running: Ints = np.asarray(view.running)
        self.used_blocks: Ints = np.asarray(view.used_blocks)
        self.assigned_requests: Ints = np.asarray(view.assigned_requests)
        self.assigned_tokens: Ints = np.asarray(view.assigned_tokens)
        self.assigned_blocks: Ints = np.asarray(view.assigned_blocks)

    @property
    def kv_usage(self) -> Floats:
        """Share of the capacity that requests in flight use, as published."""
        if self._capacity is None:
            return np.zeros(len(self.used_blocks))
        return np.minimum(self.used_blocks / self._capacity, 1.0)

    @property
    def age_requests(self) -> int:
        """Requests since the workers published."""
        return self._view.age_requests

    def signal(self, name: str) -> Ints | Floats:
        """The figures called ``name``, one of :data:`kvbench.builtin_routers.SIGNALS`."""
        figures: Ints | Floats = getattr(self, name)
        return figures


# -- prefix terms ------------------------------------------------------------------------------


def share(overlap: Int32s | Floats, blocks: int) -> Floats:
    """Overlap over the blocks of the request, 0…1; 0 for a request without blocks."""
    return overlap / blocks if blocks else np.zeros(overlap.shape)


def weighted(tier_overlap: Int32s, weights: Floats) -> Floats:
    """Overlap in blocks, each counted with the weight of the fastest tier that has it (tiers × workers, and
    a weight a tier)."""
    return np.asarray(weights @ tier_overlap, dtype=np.float64)


def tier_weights(tiers: int, *, first: float, second: float, rest: float) -> Floats:
    """A weight for each of so many tiers: the fastest, the one below, all others."""
    return np.array([first, second, *[rest] * tiers])[:tiers]


# -- load terms --------------------------------------------------------------------------------


def spread(load: Ints | Floats) -> Floats:
    """1 for the least loaded worker, 0 for the most loaded, in between in proportion; all 1 where all are equal."""
    low, high = load.min(), load.max()
    return (high - load) / (high - low) if high > low else np.ones(len(load))


def relative(load: Ints | Floats) -> Floats:
    """How far each load is above the mean, in means: (load - mean) / max(1, mean)."""
    mean = load.mean()
    return np.asarray((load - mean) / max(1.0, float(mean)))


def is_imbalanced(load: Ints | Floats, above: float, times: float) -> bool:
    """Whether the largest load is more than ``above`` over the least and more than ``times`` as much."""
    low, high = float(load.min()), float(load.max())
    return high - low > above and high > times * low
