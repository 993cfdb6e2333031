"""Parameters of compute models in nanoseconds."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from kvbench.errors import ConfigError
from kvbench.units import DURATION_UNITS

_UNIT = re.compile(r"_(s|ms|us|ns)(_|$)")


def in_ns(name: str, value: float, *, signed: bool = False) -> float:
    """The parameter ``name``, whose unit is in the name, in nanoseconds: ``decode_ms = 0.1`` is 100,000,
    not a bit more.

    Raises ConfigError for one that is not finite, or negative unless it may be.
    """
    unit = _UNIT.search(name)
    assert unit is not None, name
    if not math.isfinite(value) or (value < 0 and not signed):
        raise ConfigError(f"{name} = {value!r} must be a number of at least 0")
    return float(Fraction(repr(float(value))) * DURATION_UNITS[unit.group(1)])


def at_least(name: str, value: float, least: float) -> float:
    """``value`` if it is finite and not below ``least``, else ConfigError."""
    if not (math.isfinite(value) and value >= least):
        raise ConfigError(f"{name} = {value!r} must be a number of at least {least:g}")
    return float(value)
