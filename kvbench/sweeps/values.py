"""Lists and ranges of values, as people write them: ``1k,10k``, ``1k..1M``, ``0.5..8:5``."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvbench.errors import ConfigError
from kvbench.results.capacities import STEPS_A_DECADE
from kvbench.units import BYTE_UNITS, COUNT_UNITS, DURATION_UNITS, TOKEN_UNITS, split_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    Value = int | float | str

Kind = Literal["whole", "number", "text"]
"""What the values of a setting are: whole numbers, numbers, or text, such as a size with its unit."""

MAX_POINTS = 100_000
DIGITS = 4
"""Of a number, or a share, inside a range."""

_SCALES: tuple[dict[str, int], ...] = (COUNT_UNITS, BYTE_UNITS, TOKEN_UNITS, DURATION_UNITS, {"%": 1})
_SMALLEST = {"B", "tok", "ns"}


def split_values(text: str) -> list[str]:
    """The values of a list: commas part them, but a piece with ``=`` belongs to the one before it, so
    ``lru,s3-fifo,small=0.1,arc`` are three."""
    values: list[str] = []
    for piece in text.split(","):
        if "=" in piece and values:
            values[-1] += "," + piece.strip()
        else:
            values.append(piece.strip())
    return values


def expand(text: str, kind: Kind, where: str) -> Iterator[Value]:
    """The values of one item of a list: itself, or those of the range that it is.

    ``LOW..HIGH`` of a setting of whole numbers is each of them; of others ten steps a decade, as far apart in the
    logarithm. ``LOW..HIGH:N`` is N values, as far apart in the logarithm, or evenly where LOW is 0. Raises
    ConfigError, which begins with ``where``.
    """
    low_text, dots, rest = text.partition("..")
    if not dots or not _is_quantity(low_text):
        yield text
        return
    high_text, colon, points_text = rest.partition(":")
    points = _points_of(points_text, where, text) if colon else None
    (low, unit), (high, high_unit) = (_end(end, where, text) for end in (low_text, high_text))
    scale = next((each for each in _SCALES if unit in each and high_unit in each), None)
    if scale is None:
        raise ConfigError(
            f"{where} = {text}: the ends of a range have units of one kind, not {unit!r} and {high_unit!r}"
        )
    low, high = low * scale[unit], high * scale[high_unit]
    if low > high:
        raise ConfigError(f"{where} = {text}: the range goes down")
    if kind == "whole" and points is None:
        if high - low >= MAX_POINTS:
            raise ConfigError(f"{where} = {text}: {int(high - low) + 1:,} values; say how many, as in {text}:20")
        yield from range(math.ceil(low), math.floor(high) + 1)
        return
    seen: set[Value] = set()
    for value in _spaced(low, high, points, where, text):
        written = _written(value, kind, scale, (unit, high_unit))
        if written not in seen:  # small whole numbers are closer than their steps
            seen.add(written)
            yield written


def _is_quantity(text: str) -> bool:
    try:
        split_quantity(text)
    except ConfigError:
        return False
    return True


def _end(text: str, where: str, whole: str) -> tuple[Fraction, str]:
    try:
        return split_quantity(text)
    except ConfigError as error:
        raise ConfigError(f"{where} = {whole}: {error}") from None


def _points_of(text: str, where: str, whole: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MAX_POINTS:
        raise ConfigError(f"{where} = {whole}: {text!r} must be a number of points, from 2 to {MAX_POINTS:,}")
    return int(text)


def _spaced(low: Fraction, high: Fraction, points: int | None, where: str, text: str) -> list[float | Fraction]:
    if low == high:
        return [low]
    if low == 0:
        if points is None:
            raise ConfigError(f"{where} = {text}: a range from 0 has no decades; say how many values, as in {text}:5")
        return [low + (high - low) * at / (points - 1) for at in range(points)]
    if points is None:
        points = 1 + math.ceil(STEPS_A_DECADE * math.log10(high / low))
    return [low, *np.geomspace(float(low), float(high), points).tolist()[1:-1], high]


def _written(value: float | Fraction, kind: Kind, scale: dict[str, int], units: tuple[str, str]) -> Value:
    if kind == "whole" or (kind == "text" and scale is COUNT_UNITS):
        return round(value)
    if kind == "number":
        number = float(value) if isinstance(value, Fraction) else float(f"{value:.{DIGITS}g}")
        return int(number) if number.is_integer() else number
    if "%" in scale:
        return f"{float(value):.{DIGITS}g}%"
    amount = round(value)
    names = [*units, *(_SMALLEST & set(scale))]
    unit = next(name for name in names if amount % scale[name] == 0)
    return f"{amount // scale[unit]}{unit}"
