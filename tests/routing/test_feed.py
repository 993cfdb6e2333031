"""Numbered events: what is doubled, late or missing is counted exactly (semantics §8.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kvbench.routing import EventFeed, KvbmIndex
from tests.routing.events import event

WORKERS = 3


@dataclass
class Model:
    """What a feed counts, with a set for each life of each worker."""

    epoch: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(WORKERS), 0))
    due: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(WORKERS), 0))
    got: dict[int, set[int]] = field(default_factory=lambda: {worker: set() for worker in range(WORKERS)})
    held: dict[int, set[int]] = field(default_factory=lambda: {worker: set() for worker in range(WORKERS)})
    stale: set[int] = field(default_factory=set)
    applied: int = 0
    duplicates: int = 0
    gaps: int = 0
    missing: int = 0
    late: int = 0
    restarts: int = 0
    outdated: int = 0

    def receive(self, kind, worker, key, number, epoch):
        if epoch < self.epoch[worker]:
            self.outdated += 1
            return
        if epoch > self.epoch[worker]:
            self.restarts += 1
            self.epoch[worker], self.due[worker], self.got[worker], self.held[worker] = epoch, 0, set(), set()
            self.stale.discard(worker)
        if number in self.got[worker]:
            self.duplicates += 1
            return
        if number < self.due[worker]:
            self.late += 1
            self.missing -= 1
        elif number > self.due[worker]:
            self.gaps += 1
            self.missing += number - self.due[worker]
            self.stale.add(worker)
        self.due[worker] = max(self.due[worker], number + 1)
        self.got[worker].add(number)
        self.applied += 1
        if kind == "INSERT":
            self.held[worker].add(key)
        else:
            self.held[worker].discard(key)


heard = st.lists(
    st.tuples(
        st.sampled_from(["INSERT", "INSERT", "DELETE"]),
        st.integers(0, WORKERS - 1),
        st.integers(0, 9),
        st.integers(0, 12),
        st.integers(0, 2),
    ),
    max_size=80,
)


@given(heard)
def test_counters_are_exact_whatever_comes_in_whatever_order(told):
    index = KvbmIndex(WORKERS)
    feed = EventFeed(index)
    model = Model()
    for kind, worker, key, number, epoch in told:
        feed.receive(event(kind, worker, key, number), epoch)
        model.receive(kind, worker, key, number, epoch)
    for name in ("applied", "duplicates", "gaps", "missing", "late", "restarts", "outdated"):
        assert getattr(feed, name) == getattr(model, name), name
    assert feed.stale_sources == sorted(model.stale)
    for key in range(10):
        assert index.holders_of(key) == [worker for worker in range(WORKERS) if key in model.held[worker]]


def test_number_0_again_is_a_restart_where_nothing_else_says_so():
    index = KvbmIndex(2)
    feed = EventFeed(index)
    for worker in (0, 1):
        for number, key in enumerate((7, 8)):
            feed.receive(event("INSERT", worker, key, number))
    feed.receive(event("INSERT", 0, 9, 0))
    assert feed.restarts == 1
    assert [index.holders_of(key) for key in (7, 8, 9)] == [[1], [1], [0]]


def test_more_gaps_than_are_remembered_are_counted_all_the_same():
    feed = EventFeed(KvbmIndex(1))
    for number in range(1, 8_000, 2):
        feed.receive(event("INSERT", 0, number, number))
    assert (feed.gaps, feed.missing) == (4_000, 4_000)
    feed.receive(event("INSERT", 0, 7_998, 7_998))
    assert (feed.late, feed.missing, feed.duplicates) == (1, 3_999, 0)
    feed.receive(event("INSERT", 0, 0, 0), 0)
    assert (feed.late, feed.duplicates) == (1, 1)
