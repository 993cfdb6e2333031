"""Ids of several files in one trace, told apart where they do not mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.trace.formats.fields import BadValue

if TYPE_CHECKING:
    from kvbench.trace.formats.fields import Ids

SPACE_BITS = 40
"""The bits of an id that stay as they are; those above hold the number of the file."""
MAX_SPACES = 2 ** (64 - SPACE_BITS)


def placed(name: str, ids: Ids, space: int) -> Ids:
    """``ids`` of file number ``space``; those of file 0 are as they were.

    Raises BadValue for ids of a later file that leave no room for its number.
    """
    if space == 0 or len(ids) == 0:
        return ids
    largest = int(ids.max())
    if largest >= 2**SPACE_BITS or space >= MAX_SPACES:
        raise BadValue(name, largest, f"is too large to be told apart from the ids of {space:,} other files")
    return ids | np.uint64(space << SPACE_BITS)
