"""What is given in place of tokens: the hash of each block, and the number of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from kvbench.errors import ArgumentError, shorten
from kvbench.tokens.arrays import whole_number
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvbench.tokens.hashes.base import Digest

    Hashes: TypeAlias = "Sequence[Digest] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray"
    Offsets: TypeAlias = "Sequence[int] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray"


def ready_hashes(hashes: Hashes) -> list[Digest]:
    """``hashes`` as digests of Python's types: integers of 64 bits, of either sign, and bytes.

    Raises ArgumentError for what is no sequence, and for a hash that is neither or has more bits.
    """
    return [_digest(at, value) for at, value in enumerate(_values(hashes, "hashes"))]


def block_sizes(offsets: Offsets) -> npt.NDArray[np.int64]:
    """The tokens of each block; int64. Their sum is one, too: no block has more than a prompt can have.

    Raises ArgumentError for what is no sequence of whole numbers from 0 to 2³²-1.
    """
    return np.array([_size(at, value) for at, value in enumerate(_values(offsets, "offsets"))], np.int64)


def _values(given: Hashes | Offsets, name: str) -> list[Any]:
    if isinstance(given, pa.Array | pa.ChunkedArray):
        values: list[Any] = given.to_pylist()
        return values
    if not isinstance(given, str | bytes) and getattr(given, "ndim", 1) == 1:
        try:
            return list(given)
        except TypeError:
            pass
    raise ArgumentError(f"{name} = {shorten(given)} must be a sequence with a value for each block")


def _digest(at: int, value: object) -> Digest:
    if isinstance(value, bytes):
        return value
    number = whole_number(value)
    if number is None:
        raise ArgumentError(f"hash {at} is {shorten(value)}; it must be an integer or the bytes of a digest")
    if not -(2**63) <= number < 2**64:
        raise ArgumentError(f"hash {at} is {number}, which has more than 64 bits")
    return number


def _size(at: int, value: object) -> int:
    number = whole_number(value)
    if number is None or not 0 <= number <= MAX_TOKENS:
        raise ArgumentError(
            f"offset {at} is {shorten(value)}; it must be a number of tokens, a whole one from 0 to {MAX_TOKENS:,}"
        )
    return number
