"""The clock of timed replays (semantics §9.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.serving.clock import Clock


def ring_all(clock: Clock) -> list[tuple[int, int]]:
    """(time, data) of all alarms, in the order in which they ring."""
    rung = []
    while (alarm := clock.take_alarm()) is not None:
        assert clock.now_ns == alarm[0]
        rung.append((alarm[0], alarm[3]))
    return rung


@given(st.lists(st.integers(0, 20)))
def test_alarms_ring_by_time_and_those_of_one_time_as_they_were_set(times: list[int]) -> None:
    clock = Clock()
    for number, time_ns in enumerate(times):
        clock.set_alarm(time_ns, data=number)
    assert ring_all(clock) == sorted((time_ns, number) for number, time_ns in enumerate(times))


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=30))
def test_alarms_set_by_alarms_ring_in_their_order(delays: list[list[int]]) -> None:
    """Each alarm sets the next few, which may be due at once."""
    clock, model, number = Clock(), [(0, 0)], 1
    clock.set_alarm(0)
    for later in delays:
        alarm = clock.take_alarm()
        assert (alarm is None) == (not model)
        if alarm is None:
            break
        time_ns, first = min(model)
        model.remove((time_ns, first))
        assert (alarm[0], alarm[3]) == (time_ns, first)
        for delay in later:
            clock.set_alarm(time_ns + delay, data=number)
            model.append((time_ns + delay, number))
            number += 1
    assert ring_all(clock) == sorted(model)


def test_an_alarm_brings_back_what_was_set() -> None:
    clock = Clock()
    clock.set_alarm(2**62, kind=3, worker=7, data=-(2**62))
    assert clock.next_alarm_ns == 2**62
    assert clock.take_alarm() == (2**62, 3, 7, -(2**62))
    assert clock.take_alarm() is None
    assert clock.next_alarm_ns is None


def test_time_neither_goes_back_nor_passes_an_alarm() -> None:
    """A replay that asked for that would be wrong without a word."""
    clock = Clock()
    clock.wait_until(10)
    with pytest.raises(AssertionError, match="9 ns is past: it is 10 ns"):
        clock.set_alarm(9)
    with pytest.raises(AssertionError, match="9 ns is past: it is 10 ns"):
        clock.wait_until(9)
    clock.set_alarm(20)
    with pytest.raises(AssertionError, match="an alarm rings at 20 ns, before 21 ns"):
        clock.wait_until(21)
    assert clock.now_ns == 10
    clock.wait_until(20)
    assert clock.take_alarm() == (20, 0, 0, 0)


def test_a_million_gaps_of_a_tenth_of_a_second_end_at_99_999_9_seconds() -> None:
    """One arrival at 0, the last of a million after 999,999 gaps: whole nanoseconds do not drift."""
    clock = Clock()
    for _ in range(999_999):
        clock.wait_until(clock.now_ns + 100_000_000)
    assert clock.now_ns == 99_999_900_000_000
