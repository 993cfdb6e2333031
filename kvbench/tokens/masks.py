"""Masks over the tokens of a call: which leading tokens are not asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from kvbench.errors import ArgumentError, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    Mask: TypeAlias = "Sequence[bool] | npt.NDArray[np.bool_] | pa.BooleanArray"

Rules = Literal["strict", "lmcache"]
"""``strict``: a mask is Falses, then Trues, one for each token. ``lmcache``: its Falses are counted,
wherever they stand and however long it is, and taken for leading ones (LMCache 0.5.6)."""


def leading_falses(mask: Mask | None, length: int, rules: Rules) -> int:
    """How many leading tokens of ``length`` a mask leaves out. Raises ArgumentError for a mask that
    breaks the rules."""
    if mask is None:
        return 0
    try:
        values: npt.NDArray[Any] = np.asarray(mask)
    except ValueError:  # rows of different lengths
        raise ArgumentError(f"mask {shorten(mask)} is not a sequence of booleans") from None
    if values.ndim != 1 or (values.size and values.dtype != np.bool_):
        raise ArgumentError(f"mask {shorten(mask)} is not a sequence of booleans")
    falses = int(values.size - np.count_nonzero(values))
    if rules == "lmcache":
        return falses
    if values.size != length:
        raise ArgumentError(f"the mask has {values.size} values, and there are {length} tokens")
    if values[:falses].any():
        at = falses + int(np.flatnonzero(~values[falses:].astype(bool))[0])
        raise ArgumentError(f"the mask is False at token {at}, behind a True; it must be Falses, then Trues")
    return falses
