"""Times of logs as whole nanoseconds since the Unix epoch, exact to the digits that are written."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from kvbench.trace.formats.documents import BadValue
from kvbench.units import MAX_NS, NS_PER_S

UNITS = {"s": NS_PER_S, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds of each unit that a number may count."""

_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|UTC|[+-]\d\d:?\d\d)?", re.IGNORECASE)
_NANO_DIGITS = 9
_SAY_UNIT = "say which unit it is in (s, ms, us, ns)"
_LATEST_S = 7_258_118_400
"""The year 2200: a later time is one in a smaller unit."""


def instant_ns(name: str, value: Any, unit: str = "s") -> int:
    """A number of ``unit`` since the epoch, or a text as of ISO 8601 (UTC where it names no zone).

    Raises BadValue for anything else, for a time before 1970, and for a number so large that it
    must count a smaller unit.
    """
    if isinstance(value, str):
        return _from_text(name, value)
    return _counted(name, value, unit, _LATEST_S * NS_PER_S, f"is no time in {unit} since 1970; {_SAY_UNIT}")


def duration_ns(name: str, value: Any, unit: str) -> int:
    """A number of ``unit`` as nanoseconds, rounded. Raises BadValue for what is no number from 0 on."""
    return _counted(name, value, unit, MAX_NS, "is too large; times are counted in 64-bit nanoseconds")


def _counted(name: str, value: Any, unit: str, most_ns: int, too_much: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(name, value, "must be a number, or a time like 2026-02-25T10:00:00.5Z")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(name, value, "must be finite")
    if value < 0:
        raise BadValue(name, value, "must not be negative")
    nanoseconds = _product(value, UNITS[unit])
    if nanoseconds > most_ns:
        raise BadValue(name, value, too_much)
    return nanoseconds


def _product(value: float, scale: int) -> int:
    if isinstance(value, int):
        return value * scale
    whole = int(value)
    # Apart, a fraction keeps the digits that it would lose beside 10¹⁸.
    return whole * scale + round((value - whole) * scale)


def _from_text(name: str, text: str) -> int:
    found = _ISO.fullmatch(text.strip())
    if found is None:
        raise BadValue(name, text, "must be a time like 2026-02-25T10:00:00.5Z")
    date, fraction, zone = found.groups()
    zone = "+00:00" if zone is None or zone.upper() in ("Z", "UTC") else zone
    try:
        moment = datetime.fromisoformat(date + zone)
    except ValueError:
        raise BadValue(name, text, "is no date and time that exists") from None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = (since.days * 86_400 + since.seconds) * NS_PER_S + int((fraction or "").ljust(_NANO_DIGITS, "0"))
    if not 0 <= nanoseconds <= MAX_NS:
        raise BadValue(name, text, "must not be before 1970, and not after 2262")
    return nanoseconds
