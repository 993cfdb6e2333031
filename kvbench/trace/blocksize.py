"""How many block ids a prompt has, and which block sizes explain the ids that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvbench.errors import ConfigError
from kvbench.trace.schema import TAIL_RULES
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from kvbench.trace.columns import Int64s


class Interval(NamedTuple):
    """Block sizes from ``low`` to ``high`` tokens, both included; ``high`` None: no limit."""

    low: int
    high: int | None

    def holds(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    def intersection(self, other: Interval) -> Interval | None:
        """The sizes that are in both, or None when there are none."""
        highs = [high for high in (self.high, other.high) if high is not None]
        both = Interval(max(self.low, other.low), min(highs, default=None))
        return both if both.high is None or both.low <= both.high else None


def check_block_tokens(block_tokens: int | None) -> None:
    """Raises ConfigError for a block size that is given and out of range."""
    if block_tokens is not None and not 1 <= block_tokens <= MAX_TOKENS:
        raise ConfigError(f"block_tokens = {block_tokens} is not a block size; it must be from 1 to {MAX_TOKENS:,}")


def id_count(tokens: Int64s, block_tokens: int, tail_rule: str) -> Int64s:
    """The number of ids of prompts of ``tokens`` tokens."""
    if tail_rule == "ceil":
        return (tokens + (block_tokens - 1)) // block_tokens
    return tokens // block_tokens


def fitting_block_tokens(tokens: Int64s, counts: Int64s, tail_rule: str) -> Interval | None:
    """All block sizes with which every row has ``counts`` ids, or None when there is none."""
    if len(tokens) == 0:
        return Interval(1, None)
    if tail_rule == "ceil" and bool(np.any(counts == 0)):
        return None
    if tail_rule == "ceil":
        # ceil(L / B) = n where L / n <= B < L / (n - 1).
        lows, limits, spans = -(-tokens // counts), tokens, counts - 1
        bounded = spans > 0
        highs = -(-limits[bounded] // spans[bounded]) - 1
    else:
        # floor(L / B) = n where L / (n + 1) < B <= L / n.
        lows = tokens // (counts + 1) + 1
        bounded = counts > 0
        highs = tokens[bounded] // counts[bounded]
    low = max(1, int(lows.max()))
    high = int(highs.min()) if len(highs) else None
    return None if high is not None and high < low else Interval(low, high)


def describe_interval(interval: Interval) -> str:
    """``16``, ``from 17 to 20`` or ``of 20 or more``."""
    low, high = interval
    if high is None:
        return f"of {low} or more"
    return str(low) if low == high else f"from {low} to {high}"


class FitSoFar:
    """Which block sizes and tail rules explain the rows seen so far; for the hint in a message."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._fits: dict[str, Interval | None] = dict.fromkeys(TAIL_RULES, Interval(1, None))

    def add(self, tokens: Int64s, counts: Int64s) -> None:
        """Go on after these rows."""
        self._fits = {rule: self._with(tokens, counts, rule) for rule in TAIL_RULES}

    def hint(self, tokens: Int64s, counts: Int64s, tail_rule: str) -> str:
        """What to give, other than ``tail_rule`` and the block size, so that these further rows fit; or nothing."""
        other = "floor" if tail_rule == "ceil" else "ceil"
        interval = self._with(tokens, counts, other)
        if interval is not None and interval.holds(self._block_tokens):
            return f"; --tail-rule {other} would fit the rows so far"
        interval = self._with(tokens, counts, tail_rule)
        return f"; --block-tokens {describe_interval(interval)} would fit the rows so far" if interval else ""

    def _with(self, tokens: Int64s, counts: Int64s, tail_rule: str) -> Interval | None:
        before, further = self._fits[tail_rule], fitting_block_tokens(tokens, counts, tail_rule)
        return before.intersection(further) if before and further else None


def describe_fits(tokens: Int64s, counts: Int64s) -> str:
    """Which block sizes fit the rows under each tail rule, in words."""
    fits = [(rule, fitting_block_tokens(tokens, counts, rule)) for rule in TAIL_RULES]
    said = [
        f"--block-tokens {describe_interval(interval)} with --tail-rule {rule}"
        for rule, interval in fits
        if interval is not None
    ]
    rows = f"the first {len(tokens):,} rows" if len(tokens) != 1 else "the first row"
    if not said:
        return f"no block size fits {rows}"
    return f"{rows} fit {' or '.join(said)}"
