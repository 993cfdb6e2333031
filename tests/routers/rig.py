"""A router with whatever its index and its load views say, to ask it for its choice by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvbench.builtin_routers import SIGNALS
from kvbench.plugins import load_registry
from kvbench.replays.parts import choose as choose_part
from kvbench.routers import Router
from kvbench.routers.ties import Ties
from kvbench.routing import RouterContext
from kvbench.specs import RouterPolicySpec


@dataclass
class Request:
    """What a router asks of a request."""

    blocks: int = 10
    tokens: int = 100
    best: int = 0
    number: int = 0
    time_ns: int = 0
    session: int = -1
    tenant: int = -1
    keys: Sequence[int] = ()

    def key(self, block: int) -> int:
        return self.keys[block]


@dataclass
class Known:
    """Load figures; those that are not set are 0."""

    figures: dict[str, np.ndarray]
    age_requests: int = 0

    def __getattr__(self, name: str) -> np.ndarray:
        return self.figures[name]

    def signal(self, name: str) -> np.ndarray:
        return self.figures[name]


class Rig:
    """``Rig("least-loaded", requests=[3, 1])`` has as many workers as its figures.

    ``overlap`` is a list, or one for each tier; other keywords are figures of load.
    """

    def __init__(self, router: str, *, seed: int = 1, block_tokens: int = 10, overlap: Any = None, **load: Any) -> None:
        workers = len(next(iter(load.values())) if load else np.atleast_2d(overlap)[0])
        tiers = np.atleast_2d(np.zeros(workers) if overlap is None else overlap).astype(np.int32)
        spec = choose_part(load_registry(autoload=False), RouterPolicySpec, router, "--router")
        names = tuple(f"tier{level}" for level in range(len(tiers)))
        made = spec.make(RouterContext(workers, seed, block_tokens=block_tokens, tiers=names))
        assert isinstance(made, Router)
        self.router = made
        made.tier_overlap, made.overlap = tiers, tiers.sum(axis=0, dtype=np.int32)
        self.set(**load)

    def set(self, age: int = 0, **load: Any) -> None:
        """Other figures of load."""
        figures = {name: np.zeros(self.router.workers, dtype=np.int64) for name in SIGNALS}
        figures |= {name: np.asarray(values) for name, values in load.items()}
        known: Any = Known(figures, age)
        self.router.known = known
        self.router.ties = Ties("random", known, self.router.random)

    def choose(self, **request: Any) -> int:
        """The worker for a request; its ``best`` is what the overlap says."""
        return self.router.choose(Request(best=int(self.router.overlap.max()), **request))  # type: ignore[arg-type]

    def chosen(self, times: int = 200, **request: Any) -> set[int]:
        """All workers that the same request may go to."""
        return {self.choose(**request) for _ in range(times)}
