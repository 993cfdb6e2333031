"""Where a prompt is split into segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ArgumentError, ConfigError
from kvbench.tokens.arrays import token_array

if TYPE_CHECKING:
    from kvbench.tokens.arrays import Tokens, TokenSource


def segments(tokens: Tokens, separator: Tokens) -> list[tuple[int, int]]:
    """The segments of ``tokens``, as (start, end): what is between occurrences of ``separator``.

    Occurrences are found from the front and do not overlap; their tokens belong to no segment. A
    separator at either end, or two side by side, leave an empty segment (start equals end). There is
    always one segment more than there are separators.
    """
    size, found, start = len(separator), [], 0
    if len(tokens) >= size:
        windows = np.lib.stride_tricks.sliding_window_view(tokens, size)
        # Most windows differ in the first token, so the rest is compared for few.
        near = np.flatnonzero(windows[:, 0] == separator[0])
        for at in near[(windows[near] == separator).all(axis=1)].tolist():
            if at >= start:
                found.append((start, at))
                start = at + size
    found.append((start, len(tokens)))
    return found


def parse_separator(text: str) -> Tokens:
    """A separator from its token ids in decimal, set apart by spaces. Raises ConfigError for anything else."""
    try:
        ids = [int(word) for word in text.split()]
    except ValueError:
        raise ConfigError(f"separator = {text!r} is not token ids set apart by spaces, such as '7 8'") from None
    return check_separator(ids)


def check_separator(tokens: TokenSource) -> Tokens:
    """``tokens`` as an array; raises ConfigError if there is none, or if one is no id."""
    try:
        found = token_array(tokens)
    except ArgumentError as error:
        raise ConfigError(f"separator: {error}") from None
    if len(found) == 0:
        raise ConfigError("separator is empty; it must be at least one token")
    return found
