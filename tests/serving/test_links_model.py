"""Transfers end when an exact simulation with fractions says so, rounded up to a nanosecond.

The compiled ones have no fractions: they could be a nanosecond off where an exact end is within 2⁻⁴⁴ ns of
a whole one, and no example comes near that.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kvbench.serving.link import Link
from kvbench.serving.links import Transfers


class Spec(NamedTuple):
    """A link: bandwidth in bytes/s, latency in ns, transfers in flight and operations of one at most (0: any)."""

    bandwidth: int
    latency_ns: int
    limit: int
    sharing: str

    def delay_ns(self, operations: int) -> int:
        waves = -(-operations // self.limit) if self.limit and self.sharing == "fair" else min(operations, 1)
        return waves * self.latency_ns

    def make(self, number: int) -> Link:
        concurrency = self.limit if self.sharing == "fair" else 0
        return Link(f"link {number}", self.bandwidth, self.latency_ns, self.sharing, concurrency)


class Arrival(NamedTuple):
    """A transfer: how long after the one before, how much, over which of the paths."""

    gap_ns: int
    size: int
    operations: int
    path: int


@dataclass
class Exact:
    """All events at their exact times. A path is a list of legs, a leg a tuple of links that are passed at once."""

    links: list[Spec]
    paths: list[list[tuple[int, ...]]]
    arrivals: list[Arrival]
    now: Fraction = Fraction(0)
    legs: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    delayed: dict[int, Fraction] = field(default_factory=dict)
    flowing: dict[int, Fraction] = field(default_factory=dict)
    ends: dict[int, Fraction] = field(default_factory=dict)

    def leg(self, number: int) -> tuple[int, ...]:
        return self.paths[self.arrivals[number].path][self.legs[number]]

    def users(self, link: int, numbers: object) -> int:
        return sum(link in self.leg(number) for number in numbers)

    def rate(self, number: int) -> Fraction:
        """Bytes a nanosecond: the least of equal shares."""
        shares = (Fraction(self.links[link].bandwidth, self.users(link, self.flowing)) for link in self.leg(number))
        return min(shares) / 10**9

    def admit(self) -> None:
        """In the order of asking; nobody passes one who waits for a link that both need."""
        wanted: set[int] = set()
        for number in list(self.waiting):
            leg = self.leg(number)
            in_flight = [*self.delayed, *self.flowing]
            room = all(
                not self.links[link].limit or self.users(link, in_flight) < self.links[link].limit for link in leg
            )
            limited = {link for link in leg if self.links[link].limit}
            if room and not limited & wanted:
                self.waiting.remove(number)
                operations = self.arrivals[number].operations
                self.delayed[number] = self.now + sum(self.links[link].delay_ns(operations) for link in leg)
            else:
                wanted |= limited

    def leave(self, number: int) -> None:
        self.legs[number] += 1
        if self.legs[number] < len(self.paths[self.arrivals[number].path]):
            self.waiting.append(number)
        else:
            self.ends[number] = self.now

    def run(self) -> list[int]:
        """The end of each transfer, rounded up."""
        starts, at = deque(), 0
        for number, arrival in enumerate(self.arrivals):
            at += arrival.gap_ns
            starts.append((Fraction(at), number))
        while starts or self.waiting or self.delayed or self.flowing:
            rates = {number: self.rate(number) for number in self.flowing}
            moments = [self.now + left / rates[number] for number, left in self.flowing.items()]
            then = min([*moments, *self.delayed.values(), *(start for start, _ in list(starts)[:1])])
            for number, rate in rates.items():
                self.flowing[number] -= rate * (then - self.now)
            self.now = then
            for number in [number for number, left in self.flowing.items() if left == 0]:
                del self.flowing[number]
                self.leave(number)
            for number in sorted(number for number, end in self.delayed.items() if end == then):
                del self.delayed[number]
                if self.arrivals[number].size:
                    self.flowing[number] = Fraction(self.arrivals[number].size)
                else:
                    self.leave(number)
            while starts and starts[0][0] == then:
                number = starts.popleft()[1]
                self.legs[number] = 0
                self.waiting.append(number)
            self.admit()
        return [ceil(self.ends[number]) for number in range(len(self.arrivals))]


def simulated(links: list[Spec], paths: list[list[tuple[int, ...]]], arrivals: list[Arrival]) -> list[int]:
    """The same of the compiled transfers."""
    transfers = Transfers([link.make(number) for number, link in enumerate(links)])
    for path in paths:
        numbers = [link for leg in path for link in leg]
        transfers.add_path(numbers, pipelined=len(path) == 1)
    done = []
    for owner, arrival in enumerate(arrivals):
        done += transfers.run_until(transfers.now_ns + arrival.gap_ns)
        transfers.begin(arrival.path, arrival.size, operations=arrival.operations, owner=owner)
    done += transfers.run()
    assert done == sorted(done, key=lambda end: (end[1], end[0]))
    return [end_ns for _, end_ns in sorted(done)]


BANDWIDTHS = st.sampled_from([10**9, 3 * 10**9, 7 * 10**8, 50 * 10**9, 12_345_678_901, 10**6 + 3, 999_999_937])
LATENCIES, FAIR = st.integers(0, 300), st.just("fair")
SHARED = st.builds(Spec, BANDWIDTHS, LATENCIES, st.just(0), FAIR)
LIMITED = st.builds(Spec, BANDWIDTHS, LATENCIES, st.integers(1, 4), FAIR)
QUEUED = st.builds(Spec, BANDWIDTHS, LATENCIES, st.just(1), st.just("fifo"))
ANY = SHARED | LIMITED | QUEUED


def arrivals(paths: int) -> st.SearchStrategy[list[Arrival]]:
    sizes = st.integers(0, 40) | st.integers(0, 5_000)
    each = st.builds(Arrival, st.just(0) | st.integers(0, 400), sizes, st.integers(1, 9), st.integers(0, paths - 1))
    return st.lists(each, min_size=1, max_size=12)


@given(ANY, arrivals(1))
def test_ends_at_one_link_are_the_exact_ones_rounded_up(link: Spec, coming: list[Arrival]) -> None:
    """Fair, at most so many at a time, or FIFO; whatever comes when."""
    assert simulated([link], [[(0,)]], coming) == Exact([link], [[(0,)]], coming).run()


PIPELINED = [[(0,)], [(0, 1)], [(1, 2)], [(2, 0, 1)], [(2,)]]


@given(st.tuples(*[ANY] * 3), arrivals(len(PIPELINED)))
def test_ends_on_pipelined_paths_are_the_exact_ones(links: tuple[Spec, ...], coming: list[Arrival]) -> None:
    """Paths that share links, each with its own bandwidth, latency and limit."""
    assert simulated(list(links), PIPELINED, coming) == Exact(list(links), PIPELINED, coming).run()


SERIAL = [[(0,), (1,)], [(1,), (0,), (2,)], [(1,)], [(2,), (2,)], [(0, 1)]]


@given(st.tuples(*[SHARED] * 3), arrivals(len(SERIAL)))
def test_ends_on_serial_paths_are_the_exact_ones(links: tuple[Spec, ...], coming: list[Arrival]) -> None:
    """Without limits: who comes first to a queue may hang on less than any arithmetic but fractions can tell."""
    assert simulated(list(links), SERIAL, coming) == Exact(list(links), SERIAL, coming).run()


class Network:
    """A few links with paths over them, and what was started there."""

    def __init__(self) -> None:
        self.links = [
            Link("nvme", 7 * 10**9, 80, concurrency=3),
            Link("bus", 50 * 10**9, 1),
            Link("store", 12_345_678_901, 300),
            Link("lane", 1_000_003, 0, "fifo"),
        ]
        self.transfers = Transfers(self.links)
        for path, pipelined in (([0, 1], True), ([2, 1], True), ([2, 3, 1], False), ([3, 0], True), ([1], True)):
            self.transfers.add_path(path, pipelined=pipelined)

    def check(self) -> None:
        """No link has moved more than its bandwidth allows in its busy time, which is within the time there was."""
        for link in self.links:
            assert link.moved_bytes * 10**9 <= link.busy_ns * link.bandwidth_bytes_per_s
            assert link.busy_ns <= self.transfers.now_ns


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "stop", "look"]),
        st.integers(0, 4),
        st.integers(0, 100_000),
        st.integers(0, 3_000),
    ),
    max_size=25,
)


@given(STEPS)
def test_no_link_ever_moves_more_than_its_bandwidth_allows(steps: list[tuple[str, int, int, int]]) -> None:
    """At any moment, over paths that share links, pipelined and serial, queued and stopped; and all of it gets done."""
    network, handles, ended, stopped = Network(), [], [], 0
    transfers = network.transfers
    for what, number, size, pause in steps:
        ended += transfers.run_until(transfers.now_ns + pause)
        network.check()
        if what == "start":
            handles.append(transfers.begin(number, size, owner=len(handles)))
        elif what == "stop" and handles:
            stopped += transfers.stop(handles[number % len(handles)])
    ended += transfers.run()
    network.check()
    assert len(ended) + stopped == len(handles)
    assert len({owner for owner, _ in ended}) == len(ended)
    assert transfers.under_way == 0
    assert all(link.in_flight == link.waiting == 0 for link in network.links)


@given(STEPS, st.lists(st.integers(1, 700), min_size=1, max_size=5))
def test_results_do_not_depend_on_how_often_anybody_looks(
    steps: list[tuple[str, int, int, int]], pauses: list[int]
) -> None:
    runs = []
    for looks in (False, True):
        network, handles, ended = Network(), [], []
        transfers, pace = network.transfers, itertools.cycle(pauses)
        for what, number, size, pause in steps:
            until = transfers.now_ns + pause
            while looks and transfers.now_ns < until:
                ended += transfers.run_until(min(until, transfers.now_ns + next(pace)))
            ended += transfers.run_until(until)
            if what == "start":
                handles.append(transfers.begin(number, size, owner=len(handles)))
            elif what == "stop" and handles:
                transfers.stop(handles[number % len(handles)])
        runs.append((ended + transfers.run(), [(link.moved_bytes, link.busy_ns) for link in network.links]))
    assert runs[0] == runs[1]
