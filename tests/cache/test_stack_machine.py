"""Requests, faults, freezes, restarts and removals in any order; the invariants of semantics §13 after each."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvbench.cache import make_seen
from kvbench.replays.order import COUNTS
from kvbench.replays.tiered import TieredReplay, tier_columns
from kvbench.routing import Dispatcher, KvbmIndex, PythonRouter, RouterContext, RouteRequest, RouterView
from kvbench.testing.strategies import Keys, keys_of
from tests.cache.stack_model import Settings
from tests.cache.test_stack import Shape, Stacks, shapes

MISSES = [name for name in COUNTS if name.startswith("miss_")]

paths = st.lists(st.integers(0, 1), min_size=1, max_size=10).map(lambda path: keys_of(tuple(path)))


@st.composite
def exclusive(draw: st.DrawFn) -> Shape:
    """Tiers of which a hit moves up and an eviction moves down, each worker's own."""
    sizes = draw(st.lists(st.integers(1, 10), min_size=2, max_size=4))
    tiers = [
        Settings(size, write="back" if level else "through", promotion="none" if level == len(sizes) - 1 else "move")
        for level, size in enumerate(sizes)
    ]
    return Shape(tuple(tiers))


class ToWorker(PythonRouter):
    """Sends every request where it is told."""

    to = 0

    def choose(self, request: RouteRequest) -> int:
        return self.to


class Machine(RuleBasedStateMachine):
    """Stacks behind the order loop, with an index that learns from their events."""

    @initialize(shape=st.one_of(shapes(), exclusive()))
    def make(self, shape: Shape) -> None:
        self.stacks = Stacks(shape, make_seen(False))
        self.hidden = False  # a tier could not be asked for once, so what it held may be elsewhere, too
        groups = [(1, 1)] * (len(shape.tiers) - 1) + [(shape.workers, 1)]
        self.index = KvbmIndex(shape.workers, False, groups)
        self.router = ToWorker(RouterContext(shape.workers, 0))
        self.replay = TieredReplay(
            self.stacks.stacks,
            dispatcher=Dispatcher(self.index, [RouterView(self.router, self.index)]),
            log=self.stacks.log,
            seen=self.stacks.seen,
            keep_events=True,
        )
        self.columns = tier_columns(len(shape.tiers))
        self.removed = {id(store): 0 for level in self.stacks.stores for store in level}
        self.told = True  # whether the index has heard of everything
        self.asked = self.hits = 0

    @rule(worker=st.integers(0, 2), keys=paths, later_ns=st.sampled_from([0, 1, 10**9]))
    def serve(self, worker: int, keys: Keys, later_ns: int) -> None:
        levels = len(self.stacks.shape.tiers)
        self.router.to = worker % self.stacks.shape.workers
        rows = np.zeros((1, len(COUNTS)), dtype=np.int32)
        tier_rows = np.zeros((1, len(self.columns)), dtype=np.int32)
        self.time_ns = getattr(self, "time_ns", 0) + later_ns
        self.replay.run_tiers(
            keys,
            np.array([0, len(keys)]),
            np.array([len(keys)], dtype=np.int32),
            rows,
            tier_rows,
            time_ns=np.array([self.time_ns]),
        )
        row = dict(zip(COUNTS, rows[0].tolist(), strict=True))
        tiers = dict(zip(self.columns, tier_rows[0].tolist(), strict=True))
        credits = [tiers[f"hit_{level}"] for level in range(levels)]
        assert min(*row.values(), *tiers.values()) >= 0
        assert sum(credits) == row["hit_blocks"] <= row["infinite_hit_blocks"] <= len(keys)
        assert [self.stacks.stacks[self.router.to].last_credit.count(level) for level in range(levels)] == credits
        missed = [row[name] for name in MISSES] + [tiers["not_admitted"], tiers["fault"]]
        assert row["hit_blocks"] + sum(missed) == len(keys)
        if self.told:
            assert sum(tiers[f"evicted_{level}"] for level in range(levels)) <= row["miss_evicted_blocks"]
        self.hits += row["hit_blocks"]

    @rule(
        level=st.integers(0, 3),
        unhealthy=st.booleans(),
        gets=st.sampled_from([0.0, 0.3, 1.0]),
        puts=st.sampled_from([0.0, 0.3, 1.0]),
    )
    def faults_begin(self, level: int, unhealthy: bool, gets: float, puts: float) -> None:
        self.hidden = self.hidden or unhealthy
        for store in self.stacks.stores[level % len(self.stacks.stores)]:
            store.set_faults(unhealthy=unhealthy, get_fails=gets, put_fails=puts)
        for stack in self.stacks.stacks:
            stack.expect_faults()

    @rule()
    def faults_end(self) -> None:
        for level in self.stacks.stores:
            for store in level:
                store.set_faults()
        for stack in self.stacks.stacks:
            stack.expect_faults(False)

    @rule(worker=st.integers(0, 2), frozen=st.booleans())
    def freeze(self, worker: int, frozen: bool) -> None:
        self.stacks.stacks[worker % self.stacks.shape.workers].freeze(frozen)

    @rule(level=st.integers(0, 3), at=st.integers(0, 2), keys=paths)
    def remove(self, level: int, at: int, keys: Keys) -> None:
        stores = self.stacks.stores[level % len(self.stacks.stores)]
        store = stores[at % len(stores)]
        count = store.remove(keys)
        self.removed[id(store)] += count
        self.told = self.told and not count

    @rule(worker=st.integers(0, 2), keys=paths)
    def looking_says_the_hit_and_moves_nothing(self, worker: int, keys: Keys) -> None:
        before = len(self.stacks.log)
        stack = self.stacks.stacks[worker % self.stacks.shape.workers]
        hit = stack.probe(keys)
        stack.touch_found()
        assert stack.probe(keys) == hit
        assert len(self.stacks.log) == before

    @invariant()
    def the_account_holds(self) -> None:
        if not hasattr(self, "stacks"):
            return
        self.stacks.check()
        for level in self.stacks.stores:
            for store in level:
                counts = store.counters()
                came = sum(counts[f"{name}_chunks"] for name in ("computed", "promoted", "demoted"))
                left = ("evicted_room", "evicted_watermark", "moved_up", "dropped_faulty")
                gone = sum(counts[f"{name}_chunks"] for name in left) + self.removed[id(store)]
                assert store.used == came - gone
                assert counts["written_chunks"] == came + counts["staged_chunks"]
                assert counts["age_chunks"] == counts["evicted_room_chunks"] + counts["evicted_watermark_chunks"]
                assert sum(store.ages_log2()) == counts["age_chunks"]
                assert counts["moved_down_chunks"] <= counts["age_chunks"]
                assert 0 <= counts["promoted_used_chunks"] <= counts["promoted_chunks"]
        counted = sum(store.counters()["hit_blocks"] for level in self.stacks.stores for store in level)
        assert counted == self.hits

    @invariant()
    def the_index_knows_who_holds_what(self) -> None:
        if not hasattr(self, "stacks") or not self.told:
            return
        holders: dict[int, set[int]] = {}
        for worker in range(self.stacks.shape.workers):
            for level in self.stacks.stores:
                for key in level[min(worker, len(level) - 1)].residents():
                    holders.setdefault(key, set()).add(worker)
        assert {key: set(self.index.holders_of(key)) for key in holders} == holders
        assert self.index.held == len(holders)

    @invariant()
    def exclusive_tiers_share_no_block(self) -> None:
        shape = getattr(self, "stacks", None) and self.stacks.shape
        if not shape or any(tier.write != "back" for tier in shape.tiers[1:]) or shape.tiers[0].write != "through":
            return
        if self.hidden or shape.workers > 1 or any(tier.promotion != "move" for tier in shape.tiers[:-1]):
            return
        held = [key for level in self.stacks.stores for key in level[0].residents()]
        assert len(held) == len(set(held))


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=40, deadline=None)
