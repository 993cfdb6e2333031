"""Objects of a cache trace as requests of one block each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.trace.formats.fields import say_once
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.trace.formats import ReadLog


class Objects:
    """Sizes of objects as lengths of prompts.

    With ``by_size`` an object has as many tokens as bytes, and a block is as large as any object can
    be, so that each is one (partial) block: shares of tokens are shares of bytes, while a cache still
    holds so many objects, whatever their size. Without, each object is a block of one token.
    """

    def __init__(self, by_size: bool) -> None:
        self._by_size = by_size

    @property
    def block_tokens(self) -> int:
        return MAX_TOKENS if self._by_size else 1

    def describe(self, log: ReadLog) -> None:
        """Tell what became of sizes."""
        if self._by_size:
            note = (
                "a byte of an object counts as a token, and each object is one partial block, whatever its size: "
                "replay with --tails keep"
            )
        else:
            note = "sizes of objects are left out: each is one token"
        say_once(log, note)

    def tokens(self, sizes: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """The lengths of prompts for objects of ``sizes`` bytes, from 1 to 2³² - 1 each."""
        return sizes.astype(np.uint32) if self._by_size else np.ones(len(sizes), np.uint32)

    def token_count(self, size: int) -> int:
        """As :meth:`tokens`, for one object."""
        return size if self._by_size else 1
