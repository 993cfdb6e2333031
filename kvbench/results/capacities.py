"""Which capacities of a curve are reported: those that were asked for, or a readable choice."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ConfigError
from kvbench.replays.parts import parse_capacity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Wanted = list[tuple[int | Fraction, int | Fraction]]

STEPS_A_DECADE = 10
"""Points of a range LOW..HIGH."""
ROWS = 20
SERIES: Sequence[tuple[float, ...]] = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
)
"""Round numbers in a decade."""
FIRST_SHARE = 0.001
"""The table starts after this share of the capacities that change the curve: no cache is smaller."""


def wanted_capacities(text: str | None, block_bytes: int | None) -> Wanted | None:
    """The ranges of a list like ``1k,10%,1k..1M`` (a single capacity is a range of one); shares stay
    shares until the distinct blocks are counted. Raises ConfigError for what is none."""
    if text is None:
        return None
    wanted = []
    for item in text.split(","):
        low, dots, high = item.strip().partition("..")
        start = _one(low, block_bytes)
        end = _one(high, block_bytes) if dots else start
        if type(start) is type(end) and start > end:
            raise ConfigError(f"--capacity = {item.strip()}: the range goes down")
        wanted.append((start, end))
    return wanted


def _one(text: str, block_bytes: int | None) -> int | Fraction:
    blocks, share = parse_capacity(text.strip(), block_bytes)
    if blocks is None and share is None:
        raise ConfigError("--capacity = infinite is the right end of every curve; leave it out")
    return blocks if blocks is not None else Fraction(share or 0)


def chosen_capacities(wanted: Wanted | None, distinct: int, changes: Int64s) -> Int64s:
    """The rising capacities to report."""
    if wanted is not None:
        return np.unique(np.array([each for pair in wanted for each in _range(pair, distinct)], dtype=np.int64))
    if len(changes) == 0:
        return np.array([max(distinct, 1)], dtype=np.int64)
    last = int(changes[-1])
    first = int(changes[int(len(changes) * FIRST_SHARE)])
    choices = [[*_round_numbers(first, last, series), last] for series in SERIES]
    best = min(choices, key=lambda choice: abs(len(choice) - ROWS))
    return np.array(best, dtype=np.int64)


def _range(pair: tuple[int | Fraction, int | Fraction], distinct: int) -> list[int]:
    low, high = (_blocks(end, distinct) for end in pair)
    if low > high:
        raise ConfigError(f"--capacity: a range goes down, from {low:,} to {high:,} blocks")
    points = 1 + math.ceil(STEPS_A_DECADE * math.log10(high / low)) if high > low else 1
    return [round(each) for each in np.geomspace(low, high, points).tolist()] if points > 1 else [low]


def _blocks(end: int | Fraction, distinct: int) -> int:
    if isinstance(end, int):
        return end
    blocks = math.floor(distinct * end)
    if blocks == 0:
        raise ConfigError(f"--capacity = {float(100 * end):g}% of {distinct:,} distinct blocks is less than one block")
    return blocks


def _round_numbers(first: int, last: int, series: tuple[float, ...]) -> Iterator[int]:
    seen = 0
    for exponent in range(len(str(last))):
        for step in series:
            number = int(step * 10**exponent)
            if max(first, seen + 1) <= number < last:
                seen = number
                yield number
