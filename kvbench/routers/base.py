"""The base of router policies in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import PolicyError
from kvbench.routers.terms import Load
from kvbench.routers.ties import Ties
from kvbench.routing import PythonRouter, RandomStream

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.routing import RouterContext, RouteRequest

    Scores = npt.NDArray[np.float64]
    Int32s = npt.NDArray[np.int32]


class Router(PythonRouter):
    """A router that scores all workers at once. Override ``score``: the highest score wins, and ``ties``
    says who does among equal ones (a rule of :data:`kvbench.builtin_routers.TIE_RULES`).

    Read-only arrays with a figure a worker, the same objects for every request, their contents
    those of the request at hand:

    ``overlap``       int32, leading blocks of the request that the worker holds, as the index sees it.
    ``tier_overlap``  int32, tiers × workers: of these, the blocks whose fastest copy is in the tier. For
                      classes with ``wants = ("tiers",)``.
    ``known``         what the router knows of the load, a :class:`kvbench.routers.terms.Load`.

    ``random`` is the router's own seeded stream, ``context`` what it was told when it was made.
    """

    def __init__(self, context: RouterContext, *, ties: str = "random") -> None:
        super().__init__(context)
        self.context = context
        self.random = RandomStream(context.seed)
        self.known = Load(self.load, context.capacity_blocks)
        self.overlap: Int32s = np.asarray(self.request.overlap)
        if self.wants_tiers:
            self.tier_overlap: Int32s = np.asarray(self.request.tier_overlap).reshape(self.tiers, self.workers)
        self.ties = Ties(ties, self.known, self.random)

    def score(self, request: RouteRequest) -> Scores:
        """How good each worker is for ``request``; higher is better. The array may be kept and used again."""
        raise NotImplementedError(f"{type(self).__name__} must define score(request)")

    def choose(self, request: RouteRequest) -> int:
        """The worker with the highest score. Raises PolicyError for scores that are not one for each worker."""
        scores = self.score(request)
        if scores.shape != (self.workers,):
            raise PolicyError(
                f"{type(self).__name__}.score returned figures of shape {scores.shape}, for {self.workers} workers"
            )
        return self.ties.highest(scores)
