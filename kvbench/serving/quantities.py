"""Numbers as people write them, in the units that the core calculates with."""

from __future__ import annotations

from fractions import Fraction


def ms_in_ns(milliseconds: float) -> float:
    """Nanoseconds of a decimal number of milliseconds: 0.1 ms are 100,000 ns, not a bit more."""
    return float(Fraction(repr(float(milliseconds))) * 10**6)
