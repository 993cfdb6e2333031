"""Tokens as one contiguous array, whatever they come in."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from kvbench.errors import ArgumentError, shorten
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Tokens = npt.NDArray[np.uint32]
    TokenSource: TypeAlias = "Sequence[int] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray"
    """A list, a tuple, a NumPy or Arrow array of integers, or what NumPy makes one of."""

MAX_TOKEN_ID = MAX_TOKENS
"""Ids are unsigned 32-bit."""


def token_array(tokens: TokenSource) -> Tokens:
    """``tokens`` as a contiguous array of little-endian unsigned 32-bit integers, of one dimension.

    An array that is so already is not copied. Raises ArgumentError for an id below 0 or above
    2³²-1, for what is not an integer, and for more than one dimension.
    """
    if isinstance(tokens, pa.Array | pa.ChunkedArray):
        if tokens.null_count:
            raise ArgumentError(f"tokens have {tokens.null_count} nulls; each must be an id")
        tokens = tokens.to_numpy() if isinstance(tokens, pa.ChunkedArray) else tokens.to_numpy(zero_copy_only=False)
    try:
        found: npt.NDArray[Any] = np.asarray(tokens)
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"tokens = {shorten(tokens)} are not a sequence of ids: {error}") from None
    if found.ndim != 1:
        raise ArgumentError(f"tokens have {found.ndim} dimensions; one is meant")
    if found.size == 0:
        return np.zeros(0, "<u4")
    if found.dtype.kind not in "iu":
        _refuse(found)
    if found.dtype.itemsize > 4 or found.dtype.kind == "i":
        _check_range(found)
    return np.ascontiguousarray(found, "<u4")


def whole_number(value: object) -> int | None:
    """``value`` if it is an integer of Python or NumPy; None if it is anything else, a boolean included."""
    try:
        return None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _check_range(found: npt.NDArray[Any]) -> None:
    if found.min() < 0 or found.max() > MAX_TOKEN_ID:
        at = int(np.flatnonzero((found < 0) | (found > MAX_TOKEN_ID))[0])
        raise ArgumentError(f"token {at} has the id {found[at]}; ids are 0 to {MAX_TOKEN_ID:,}")


def _refuse(found: npt.NDArray[Any]) -> None:
    """Raise for the first value that is no id: NumPy has made objects or floats of them."""
    for at, value in enumerate(found.tolist()):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKEN_ID:
            raise ArgumentError(f"token {at} has the id {value!r}; ids are integers from 0 to {MAX_TOKEN_ID:,}")
    raise ArgumentError(f"tokens are of type {found.dtype}; ids are integers")
