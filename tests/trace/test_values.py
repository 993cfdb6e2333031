"""Times, numbers and ids as foreign files write them."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.trace.formats.ids import IdLists, id_of
from kvbench.trace.formats.values import TOKENS, Bad, EpochTimes, IsoTimes, Seconds, one_by_one

NUMBERS = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9).map(str),
    st.floats().map(repr),
    st.sampled_from(["", " 7 ", "+5", "1_0", "٣", "nan", "1e-999999999", "1e999999999", "0x10", "9" * 70, "12.0"]),
)


def column(*texts: str | None) -> pa.Array:
    return pa.array(texts, pa.string())


@given(texts=st.lists(st.none() | NUMBERS, max_size=5), digits=st.sampled_from([9, 6, 3, 0]))
def test_a_column_of_times_is_read_as_its_values_are_one_by_one(texts, digits):
    reader = Seconds(digits)
    whole, single = reader(column(*texts)), one_by_one(column(*texts), pa.int64(), reader.read)
    assert whole.column.equals(single.column)
    assert whole.refused == single.refused


@given(texts=st.lists(st.none() | NUMBERS, max_size=5))
def test_a_column_of_lengths_is_read_as_its_values_are_one_by_one(texts):
    whole, single = TOKENS(column(*texts)), one_by_one(column(*texts), pa.uint32(), TOKENS.read)
    assert whole.column.equals(single.column)
    assert whole.refused == single.refused


@pytest.mark.parametrize(
    ("digits", "factor", "text", "nanoseconds"),
    [
        (9, "1", "1700000000.123456789", 1_700_000_000_123_456_789),
        (9, "1", "0.0000000005", 0),
        (9, "1", "0.0000000015", 2),
        (6, "1", "1e3", 10**9),
        (9, "0.001", "27482", 27_482_000_000),
        (0, "1", "9223372036854775807", 2**63 - 1),
    ],
)
def test_times_are_exact_to_the_nanosecond(digits, factor, text, nanoseconds):
    assert Seconds(digits, Decimal(factor))(column(text)).column.to_pylist() == [nanoseconds]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e300", "9223372036.854775808", "", "1_0", "ten"])
def test_what_is_no_time_is_refused(text):
    values = Seconds(9)(column("1", text))
    assert values.column.to_pylist() == [10**9, None]
    assert list(values.refused) == [1]


SAME_TIME = 1_700_158_623_979_960_000


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-16 18:17:03.9799600",
        "2023-11-16T18:17:03.97996Z",
        "2023-11-16 18:17:03.979960+00:00",
        "2023-11-16T19:17:03,97996 +01:00",
        "2023-11-16T12:47:03.979960000-0530",
    ],
)
def test_dates_of_all_spellings_are_one_time(text):
    assert IsoTimes()(column(None, text)).column.to_pylist() == [None, SAME_TIME]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("2023-02-30 00:00:00", "is no time: day is out of range for month"),
        ("2023-01-01 25:00", "is no time: hour must be in"),
        ("1969-12-31 23:59:59", "must be a time from 1970 to 2262"),
        ("2263-01-01", "must be a time from 1970 to 2262"),
        ("2023-01-01 00:00:00+25:00", "is no time: there is no time zone"),
        ("yesterday", "must be a date and time as in"),
    ],
)
def test_what_is_no_date_is_refused(text, rule):
    refused = IsoTimes()(column(text)).refused
    assert rule in refused[0][1]


def test_times_with_and_without_a_zone_do_not_mix():
    clock = IsoTimes()
    assert not clock(column("2023-01-01 00:00:00")).refused
    assert "must have no time zone" in clock(column("2023-01-01 00:00:01", "2023-01-01 00:00:01Z")).refused[1][1]


@pytest.mark.parametrize("text", ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000"])
def test_the_unit_of_a_time_since_1970_is_seen_from_its_size(text):
    clock = EpochTimes()
    assert clock(column(text)).column.to_pylist() == [17 * 10**17]
    assert "as the first one is" in clock(column("5")).refused[0][1]
    assert "must be a time after March 1973" in EpochTimes()(column("5")).refused[0][1]


@pytest.mark.parametrize(
    ("written", "base", "number"),
    [
        (2**64 - 1, "auto", 2**64 - 1),
        (-1, "auto", 2**64 - 1),
        ("18446744073709551615", "auto", 2**64 - 1),
        ("0xff", "auto", 255),
        ("ff", "hex", 255),
        ("0x" + "0100000000000000" + "ab" * 24, "auto", 1),
    ],
)
def test_ids_use_all_64_bits_and_of_a_digest_the_first_ones(written, base, number):
    assert id_of(written, base) == number


def test_any_text_can_be_an_id():
    assert id_of("block a", "text") == id_of("block a", "text") != id_of("block b", "text")


@pytest.mark.parametrize("written", [2**64, -(2**63) - 1, True, 1.5, None, "ff", "", "0x", "0x" + "a" * 17, "1.5"])
def test_what_is_no_id_is_refused(written):
    with pytest.raises(Bad):
        id_of(written)


@pytest.mark.parametrize(
    ("separator", "text"), [("", "1 2 3"), ("", "[1, 2, 3]"), (";", "1;2;3"), ("|", "1 | 2|3"), (":", "0x1:2:3")]
)
def test_ids_in_one_text_are_taken_apart(separator, text):
    reader = IdLists(separator)
    assert reader(column(text, "", None)).column.to_pylist() == [[1, 2, 3], [], None]
    assert reader.of_lists([[1, 2, 3], text, None]).column.to_pylist() == [[1, 2, 3], [1, 2, 3], None]
