"""Requests as prompts make them: paths in a tree, many of which share their beginnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

Keys: TypeAlias = npt.NDArray[np.uint64]
"""The keys of one request, first block first."""

Shape: TypeAlias = tuple[int, int, bytes]
"""How a request comes from earlier ones: which of them, how much of it, and what follows."""

BRANCHES = 3


def requests(*, max_requests: int = 20, max_blocks: int = 8) -> SearchStrategy[list[Keys]]:
    """Lists of requests; each is the keys of 1 to ``max_blocks`` blocks.

    A key stands for its block and all before it: two requests that share a key share all keys up
    to it, and the keys of one request are distinct.
    """
    return st.lists(shapes(max_blocks), min_size=1, max_size=max_requests).map(lambda drawn: grow(drawn, max_blocks))


def shapes(max_blocks: int) -> SearchStrategy[Shape]:
    """Shapes of requests; few large draws rather than one a block, which keeps drawing and shrinking fast."""
    return st.tuples(st.integers(0, 7), st.integers(0, max_blocks), st.binary(min_size=1, max_size=max_blocks))


def grow(drawn: Sequence[Shape], max_blocks: int) -> list[Keys]:
    """The requests of these shapes, one after another."""
    paths: list[tuple[int, ...]] = []
    for back, shared, tail in drawn:
        stem = paths[-1 - back % len(paths)][:shared] if paths else ()
        path = stem + tuple(byte % BRANCHES for byte in tail)
        paths.append(path[:max_blocks])
    return [keys_of(path) for path in paths]


def keys_of(path: tuple[int, ...]) -> Keys:
    """The keys of the nodes on a path from the root of a tree of :data:`BRANCHES` children a node."""
    keys = []
    node = 0
    for branch in path:
        node = node * BRANCHES + branch + 1
        keys.append(node)
    return np.array(keys, dtype=np.uint64)
