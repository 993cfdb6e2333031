"""Sizes and counts as people write them: ``64GiB``, ``10k``, ``10%``; and durations to read.

Decimal prefixes are powers of 1000, binary ones powers of 1024 (GB = 10⁹, GiB = 2³⁰).
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from kvbench.errors import ConfigError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

NS_PER_S = 1_000_000_000

_NUMBER = re.compile(r"^\s*([0-9][0-9_]*(?:\.[0-9]+)?)(?:[eE]([0-9]+))?\s*([A-Za-zµ%]*)\s*$")

MAX_DIGITS = 18
"""Of a number, before and after the point each, and the largest power of ten: more are never meant."""

MAX_NS = 2**63 - 1
"""Times are counted in 64-bit nanoseconds."""
MAX_TOKENS = 2**32 - 1
"""Lengths in tokens are 32-bit numbers in a trace."""

BYTE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
COUNT_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
DURATION_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_SHOWN_UNITS = (
    ("µs", 10**3),
    ("ms", 10**6),
    ("s", 10**9),
    ("min", 60 * 10**9),
    ("h", 3600 * 10**9),
    ("days", 24 * 3600 * 10**9),
)
TOKEN_UNITS = {"tok": 1, "ktok": 10**3, "Mtok": 10**6, "Gtok": 10**9}


def split_quantity(text: str) -> tuple[Fraction, str]:
    """The number and the unit of ``text``, exactly. Raises ConfigError when there is no number."""
    if text.strip().startswith("-"):
        raise ConfigError(f"{shorten(text)} must not be negative")
    match = _NUMBER.match(text)
    if match is None:
        raise ConfigError(f"{shorten(text)} is not a number with an optional unit; write for example 10k, 64GiB or 10%")
    digits, exponent, unit = match.group(1).replace("_", ""), match.group(2) or "0", match.group(3)
    if any(len(part) > MAX_DIGITS for part in (*digits.split("."), exponent)) or int(exponent) > MAX_DIGITS:
        raise ConfigError(f"{shorten(text)} is out of range: numbers go up to {MAX_DIGITS} digits and e{MAX_DIGITS}")
    return Fraction(f"{digits}e{exponent}"), unit


def parse_bytes(text: str) -> int:
    """Bytes from ``64GiB``, ``1.5MB``, ``4096B`` or a bare number of bytes."""
    return _scaled(text, {"": 1, **BYTE_UNITS}, "a size in bytes")


def parse_count(text: str) -> int:
    """A whole number from ``512``, ``10k``, ``1.5M`` or ``1_000``."""
    return _scaled(text, COUNT_UNITS, "a count")


def parse_counts(text: str) -> list[int]:
    """Whole numbers from a list like ``16,64,1k``."""
    return [parse_count(each.strip()) for each in text.split(",")]


def parse_tokens(text: str) -> int:
    """Tokens from ``512tok``, ``10ktok`` or ``3Mtok``."""
    return _scaled(text, TOKEN_UNITS, "a number of tokens")


class Lag(NamedTuple):
    """How long something takes: so many ``requests``, or ``ns`` of the trace's clock; neither: it never ends."""

    requests: int | None = None
    ns: int | None = None

    @property
    def length(self) -> int | None:
        """The number of requests or nanoseconds; None for one that never ends."""
        return self.requests if self.ns is None else self.ns


AT_ONCE = Lag(requests=0)
NEVER = Lag()


def parse_lag(lag: int | str) -> Lag:
    """A lag from ``100`` or ``10k`` (requests), ``50ms``, ``1.5s``, ``2min`` or ``1h``; or ``never``."""
    text = str(lag)
    if text == "never":
        return NEVER
    _, unit = split_quantity(text)
    if unit in COUNT_UNITS:
        return Lag(requests=parse_count(text))
    return Lag(ns=_scaled(text, DURATION_UNITS, "a number of requests, or a time"))


def parse_duration(text: str) -> int:
    """Nanoseconds from ``50ms``, ``1.5s``, ``2min`` or ``1h``. A number without a unit is none."""
    try:
        _, unit = split_quantity(text)
    except ConfigError:
        if text.strip()[:1].isalpha():
            raise ConfigError(f"{shorten(text)} is no time; write for example 500ms, 2s or 1min") from None
        raise
    if not unit:
        raise ConfigError(f"{text} is no time: its unit is missing; write for example {text}ms or {text}s")
    return _scaled(text, DURATION_UNITS, "a time")


def unknown_unit(unit: str, units: Iterable[str]) -> str:
    """What to say of a unit that is none of ``units``: the right spelling if it is one of them, and all of them."""
    known = [name for name in units if name]
    meant = next((name for name in known if name.lower() == unit.lower()), None)
    return f"unit {unit!r} is not one of {', '.join(known)}" + (f"; did you mean {meant}?" if meant else "")


def _scaled(text: str, units: dict[str, int], what: str) -> int:
    number, unit = split_quantity(text)
    if unit not in units:
        raise ConfigError(f"{text!r} is not {what}: {unknown_unit(unit, units)}")
    value = number * units[unit]
    if value.denominator != 1:
        raise ConfigError(f"{text!r} is not {what}: it is not a whole number")
    return int(value)


def format_bytes(count: int) -> str:
    """``1234567890`` as ``1.15 GiB``."""
    return _prefixed(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def format_count(count: float) -> str:
    """``12345678`` as ``12.3 M``; numbers below 10,000 in full."""
    if abs(count) < 10_000:
        return f"{count:,.0f}"
    return _prefixed(count, 1000, ("", "k", "M", "G", "T"))


def format_duration_ns(nanoseconds: float) -> str:
    """``3_537_000_000_000`` as ``59 min``: three significant digits in the largest fitting unit."""
    name, size = "ns", 1
    for unit, unit_ns in _SHOWN_UNITS:
        fewest = 2 if unit == "days" else 0.9995
        if abs(nanoseconds) >= fewest * unit_ns:  # what three digits round up to it
            name, size = unit, unit_ns
    return f"{nanoseconds / size:.3g} {name}"


def _prefixed(count: float, base: int, names: tuple[str, ...]) -> str:
    value, at = float(count), 0
    while abs(value) >= base and at < len(names) - 1:
        value /= base
        at += 1
    digits = 0 if at == 0 else max(0, 3 - len(str(int(abs(value)))))
    return f"{value:,.{digits}f} {names[at]}".rstrip()
