"""How the sentences of an answer write numbers, and shares that are given to it."""

from __future__ import annotations

from kvbench.errors import ConfigError
from kvbench.units import split_quantity


def points(difference: float) -> str:
    """A difference of two rates."""
    return f"{100 * difference:.2f} points"


def parse_share(text: str, setting: str) -> float:
    """A share from ``1%`` or ``0.01``. Raises ConfigError for one that is not from 0 to 1."""
    number, unit = split_quantity(text)
    share = float(number / 100 if unit == "%" else number)
    if unit not in ("", "%") or not 0 <= share <= 1:
        raise ConfigError(f"{setting} = {text} is not a share; write for example 1% or 0.01")
    return share
