"""Histograms by powers of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


def by_bit_length(counts: npt.NDArray[np.int64]) -> list[dict[str, int]]:
    """Counts of blocks by bit length as a list from ``from`` to ``below``, without the empty ends."""
    used = np.flatnonzero(counts)
    if len(used) == 0:
        return []
    return [
        {"from": 0 if bits == 0 else 1 << (bits - 1), "below": 1 << bits, "blocks": int(counts[bits])}
        for bits in range(int(used[0]), int(used[-1]) + 1)
    ]


def bin_end(bins: Sequence[dict[str, int]], share: float) -> int:
    """The end of the bin in which the ``share`` of all is reached."""
    wanted, so_far = share * sum(each["blocks"] for each in bins), 0
    for each in bins:
        so_far += each["blocks"]
        if so_far >= wanted:
            return each["below"]
    return bins[-1]["below"]
