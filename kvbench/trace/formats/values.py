"""Values of foreign tables, as text, turned into the numbers and times of a trace.

Each reader takes a column of text (null: not there) and gives a column of the trace's type. It tries the whole
column at once; where that fails it goes value by value, so that each bad one can be named. Nothing is rounded
but what lies below a nanosecond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.units import MAX_NS, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_DIGITS = 64
"""Of a number: more are never meant, and would take long to read."""

NS_DIGITS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Powers of ten between a unit of time and a nanosecond."""

EPOCH_DIGITS = ((17, "ns"), (14, "us"), (11, "ms"), (0, "s"))
"""From so many zeros after the first digit on, a time since 1970 is in this unit: each unit's times of 1973 to 5138."""

PLAIN_NUMBER = r"^[+-]?[0-9]{1,19}(\.[0-9]{1,9})?$"
_EXACT = Context(prec=120, Emax=999_999, Emin=-999_999)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,18}))?)?)?\s*(Z|z|UTC|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)


class Bad(ValueError):
    """A value breaks a rule, which is the message."""


@dataclass(slots=True)
class Values:
    """A column of a trace, null where a value was refused, and the refused ones: row → (value, rule)."""

    column: pa.Array
    refused: dict[int, tuple[object, str]] = field(default_factory=dict)


class Reader(Protocol):
    """Reads a column of text."""

    def __call__(self, texts: pa.StringArray) -> Values: ...


def one_by_one(texts: pa.Array, kind: pa.DataType, read: Callable[[str], object]) -> Values:
    """``read`` applied to each value that is there; raises nothing."""
    found: list[object] = []
    refused: dict[int, tuple[object, str]] = {}
    for row, text in enumerate(texts.to_pylist()):
        value = None
        if text is not None:
            try:
                value = read(text)
            except Bad as bad:
                refused[row] = (text, str(bad))
        found.append(value)
    return Values(pa.array(found, kind), refused)


def as_text(texts: pa.StringArray) -> Values:
    """The text itself."""
    return Values(texts)


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers of an Arrow integer type; ``12.0`` is one, too."""

    kind: pa.DataType
    low: int = 0
    high: int = MAX_TOKENS

    def __call__(self, texts: pa.StringArray) -> Values:
        if pc.all(pc.ascii_is_decimal(texts)).as_py() is not False:
            try:
                wide = texts.cast(pa.int64())
                least, most = pc.min_max(wide).as_py().values()
                if least is None or self.low <= least <= most <= self.high:
                    return Values(wide.cast(self.kind))
            except pa.ArrowInvalid:
                pass  # a number of more digits, which is named below
        return one_by_one(texts, self.kind, self.read)

    def read(self, text: str) -> int:
        value = decimal_of(text)
        if not value.is_finite():
            raise Bad("must be a finite number")
        if value.adjusted() > 30:
            raise Bad(f"must be from {self.low} to {self.high}")
        if value.adjusted() < -30 or value != value.to_integral_value(context=_EXACT):
            raise Bad("must be a whole number")
        if not self.low <= value <= self.high:
            raise Bad(f"must be from {self.low} to {self.high}")
        return int(value)


TOKENS = Whole(pa.uint32())
TURN = Whole(pa.uint32())
PRIORITY = Whole(pa.int32(), -(2**31), 2**31 - 1)


def decimal_of(text: str) -> Decimal:
    """The number that ``text`` says. Raises Bad."""
    text = text.strip()
    if len(text) > MAX_DIGITS:
        raise Bad(f"must be a number of at most {MAX_DIGITS} digits")
    try:
        if "_" in text or not text.isascii():
            raise InvalidOperation
        return Decimal(text, _EXACT)
    except InvalidOperation:
        raise Bad("must be a number") from None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Times as numbers: so many units of ``10 ** -9 * 10 ** digits`` seconds, times ``factor``; in nanoseconds."""

    digits: int
    factor: Decimal = Decimal(1)

    def __call__(self, texts: pa.StringArray) -> Values:
        if self.factor == 1:
            try:
                return Values(_scaled(texts, self.digits))
            except (pa.ArrowInvalid, OverflowError):
                pass  # a value that is named below, or one with parts of a nanosecond
        return one_by_one(texts, pa.int64(), self.read)

    def read(self, text: str) -> int:
        value = decimal_of(text)
        if not value.is_finite():
            raise Bad("must be a finite number")
        if not value:
            return 0
        if abs(value.adjusted()) > 40:
            return self._beyond(value.adjusted() > 0)
        scaled = _EXACT.multiply(value, self.factor).scaleb(self.digits, context=_EXACT)
        if not -MAX_NS <= scaled <= MAX_NS:
            return self._beyond(True)
        return int(scaled.to_integral_value(ROUND_HALF_EVEN, context=_EXACT))

    @staticmethod
    def _beyond(large: bool) -> int:
        if large:
            raise Bad("is too large; times are counted in 64-bit nanoseconds")
        return 0


def _scaled(texts: pa.StringArray, digits: int) -> pa.Array:
    """``texts`` · 10 ** digits as int64. Raises ArrowInvalid, OverflowError for what does not go without loss."""
    # Arrow crashes on exponents far from 0, so it is given none.
    if pc.all(pc.match_substring_regex(texts, PLAIN_NUMBER)).as_py() is False:
        raise OverflowError
    decimals = texts.cast(pa.decimal128(38, digits))
    # A decimal128 is a 128-bit number of units of its last digit: just what is wanted.
    words = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2)
    words = words[decimals.offset : decimals.offset + len(decimals)]
    values, high = words[:, 0], words[:, 1]
    valid = ~decimals.is_null().to_numpy(zero_copy_only=False)
    if np.any((high != values >> 63) & valid):
        raise OverflowError
    return pa.array(values, pa.int64(), mask=~valid)


class IsoTimes:
    """Dates with a time of day, with a zone or without one (taken as UTC), not both; in nanoseconds since 1970."""

    def __init__(self) -> None:
        self._zoned: bool | None = None

    def __call__(self, texts: pa.StringArray) -> Values:
        for zoned, kind in ((False, pa.timestamp("ns")), (True, pa.timestamp("ns", "UTC"))):
            if self._zoned in (None, zoned):
                try:
                    column = texts.cast(kind).cast(pa.int64())
                except pa.ArrowInvalid:
                    continue
                least = pc.min(column).as_py()
                if least is not None and least < 0:
                    break
                if least is not None:
                    self._zoned = zoned
                return Values(column)
        return one_by_one(texts, pa.int64(), self.read)

    def read(self, text: str) -> int:
        match = _ISO.fullmatch(text.strip())
        if match is None:
            raise Bad("must be a date and time as in 2023-11-16 18:17:03.979")
        date, hour, minute, second, fraction, zone = match.groups()
        try:
            clock = f"{date}T{hour or '00'}:{minute or '00'}:{second or '00'}+00:00"
            whole = (datetime.fromisoformat(clock) - _EPOCH) // timedelta(seconds=1) - _zone_seconds(zone)
        except ValueError as error:
            raise Bad(f"is no time: {error}") from None
        value = whole * 10**9 + (int(Seconds(9).read("0." + fraction)) if fraction else 0)
        if not 0 <= value <= MAX_NS:
            raise Bad("must be a time from 1970 to 2262")
        if self._zoned not in (None, zone is not None):
            raise Bad(
                "must have a time zone, as the times before have"
                if self._zoned
                else "must have no time zone, as the times before have none"
            )
        self._zoned = zone is not None
        return value


def _zone_seconds(zone: str | None) -> int:
    if zone is None or zone in ("Z", "z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError(f"there is no time zone {zone}")
    seconds = hours * 3600 + minutes * 60
    return -seconds if zone[0] == "-" else seconds


class EpochTimes:
    """Numbers since 1970, in s, ms, us or ns by the size of the first one; in nanoseconds since 1970."""

    def __init__(self) -> None:
        self.unit: str | None = None

    def __call__(self, texts: pa.StringArray) -> Values:
        if self.unit is None:
            self.unit = self._unit(texts)
        if self.unit is None:
            return one_by_one(texts, pa.int64(), self.read)
        values = Seconds(NS_DIGITS[self.unit])(texts)
        outside = np.flatnonzero(pc.fill_null(pc.less(values.column, 10**17), False).to_numpy(zero_copy_only=False))
        if len(outside):
            rule = f"must be a time after March 1973 in {self.unit} since 1970, as the first one is; give the unit"
            values.refused.update({int(row): (texts[int(row)].as_py(), rule) for row in outside})
        return values

    def read(self, text: str) -> int:
        value = decimal_of(text)
        if not value.is_finite():
            raise Bad("must be a finite number")
        raise Bad("must be a time after March 1973 in s, ms, us or ns since 1970; or give its unit, s, ms, us or ns")

    @staticmethod
    def _unit(texts: pa.StringArray) -> str | None:
        for text in texts.to_pylist():
            try:
                value = decimal_of(text or "")
            except Bad:
                continue
            if value.is_finite() and value >= 10**8:
                return next(unit for digits, unit in EPOCH_DIGITS if value.adjusted() >= digits)
        return None


def time_reader(unit: str) -> Reader:
    """The reader of times in ``unit``: s, ms, us, ns, ``iso`` or ``epoch``."""
    if unit == "iso":
        return IsoTimes()
    return EpochTimes() if unit == "epoch" else Seconds(NS_DIGITS[unit])


TIME_UNITS = (*NS_DIGITS, "iso", "epoch")
