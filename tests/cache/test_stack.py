"""The compiled stack does as a model in lists; one of a single tier does as a plain tier (semantics §4–6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.cache import EventLog, Seen, StackedTier, Tier, TierStack
from kvbench.cache.events import EVENT_FIELDS
from kvbench.cache.fold import Fold
from kvbench.eviction import PolicyContext
from kvbench.eviction.fifo import Fifo
from kvbench.eviction.keep import Keep
from kvbench.eviction.lru import Lru
from kvbench.plugins import load_registry
from kvbench.replays.order import COUNTS, FACTS, OrderReplay
from kvbench.replays.tiered import TieredReplay, tier_columns
from kvbench.specs import EvictionPolicySpec
from kvbench.testing.strategies import Keys, requests
from tests.cache.stack_model import NaiveStack, NaiveTier, Settings

POLICIES = {"lru": Lru, "fifo": Fifo, "keep": Keep}
FRESH = 1 << 40


@dataclass(frozen=True)
class Shape:
    """A stack of ``tiers``; its last tier is one store of all ``workers``, the others are each worker's own."""

    tiers: tuple[Settings, ...]
    walk: str = "any"
    spill: bool = False
    workers: int = 1


def make_store(
    setting: Settings,
    level: int,
    index: int,
    log: EventLog,
    policy: Any = None,
    spill: bool = False,
    seen: Seen | None = None,
) -> StackedTier:
    """A compiled tier of these settings."""
    if setting.capacity is not None and policy is None:
        policy = POLICIES[setting.policy](PolicyContext(setting.capacity))
    return StackedTier(
        policy,
        order=setting.order,
        log=log,
        store=index,
        level=level,
        name=f"tier{level}",
        multiple=setting.multiple,
        write="spill" if spill else setting.write,
        promotion=setting.promotion,
        touch_on=setting.touch_on,
        spares=setting.spares,
        whole=setting.whole,
        high=setting.high,
        low=setting.low,
        ratio=setting.ratio,
        seen=seen,
    )


def read(log: EventLog) -> list[tuple[Any, ...]]:
    """All events, without their padding."""
    return [event[:-1] for event in np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS))).tolist()]


class Stacks:
    """Compiled stacks of a shape, their event log, and what it folds to."""

    def __init__(self, shape: Shape, seen: Seen | None = None) -> None:
        self.shape = shape
        self.log, self.seen = EventLog(), seen
        self.stores: list[list[StackedTier]] = []
        for level, setting in enumerate(shape.tiers):
            count = 1 if level == len(shape.tiers) - 1 else shape.workers
            self.stores.append(
                [make_store(setting, level, index, self.log, spill=shape.spill, seen=seen) for index in range(count)]
            )
        self.stacks: list[TierStack] = []
        for worker in range(shape.workers):
            mine = [level[min(worker, len(level) - 1)] for level in self.stores]
            for above, below, setting in zip(mine, mine[1:], shape.tiers[1:], strict=False):
                if setting.write == "back":
                    above.link_below(below)
            levels = [[store] for store in mine]
            self.stacks.append(TierStack(levels, worker=worker, walk=shape.walk, spill=shape.spill))
        self.fold = Fold()
        self.told = 0

    def check(self) -> None:
        """Every store's account holds, nothing is pinned, and the events lead to what it has (semantics §13)."""
        self.fold.take(self.log.tobytes(self.told))
        self.told = len(self.log)
        for level, stores in enumerate(self.stores):
            for index, store in enumerate(stores):
                store.verify()
                assert store.pinned == 0
                residents = store.residents()
                assert len(set(residents)) == len(residents) == store.used
                assert set(residents) == set(self.fold.holdings.get((level, index), {})), f"tier {level}, store {index}"


class Pair(Stacks):
    """Compiled stacks and their models, fed alike."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.models = [[NaiveTier(setting) for _ in self.stores[level]] for level, setting in enumerate(shape.tiers)]
        self.naive = [
            NaiveStack([level[min(worker, len(level) - 1)] for level in self.models], shape.walk, shape.spill)
            for worker in range(shape.workers)
        ]
        self.served = 0

    def serve(self, worker: int, keys: Keys) -> None:
        """Serve a request and compare all that can be seen from outside."""
        stack = self.stacks[worker]
        hit = stack.serve(keys, request=self.served, time_ns=self.served)
        self.served += 1
        credit = self.naive[worker].serve(keys.tolist())
        assert (hit, stack.last_credit) == (len(credit), credit)
        for level, (stores, models) in enumerate(zip(self.stores, self.models, strict=True)):
            for index, (store, model) in enumerate(zip(stores, models, strict=True)):
                assert sorted(store.residents()) == sorted(model.queue), f"tier {level}, store {index}"
        self.check()

    def drain(self) -> None:
        """Push everything out with fresh chains: what goes when spells out each tier's order."""
        length = max(setting.multiple for setting in self.shape.tiers)
        for at in range(16):
            for worker in range(self.shape.workers):
                first = FRESH + (at * self.shape.workers + worker) * length
                self.serve(worker, np.arange(first, first + length, dtype=np.uint64))


@st.composite
def shapes(draw: st.DrawFn, kind: str = "all") -> Shape:
    """Stacks as a run file may describe them; with what is peculiar to ``kind`` beside what all have."""
    kinds = ("chunks", "moves", "temporary", "batch") if kind == "all" else (kind,)
    spill = kind == "spill" or (kind == "all" and draw(st.integers(0, 3)) == 0)
    promotions = [
        "copy",
        "none",
        *(["move"] if "moves" in kinds else []),
        *(["temporary"] if "temporary" in kinds else []),
    ]
    levels = draw(st.integers(1, 4))
    tiers: list[Settings] = []
    for level in range(levels):
        above = tiers[-1] if tiers else None
        writes = ["through", "none"] + (["back"] if above is not None and above.capacity is not None else [])
        write = "spill" if spill else draw(st.sampled_from(writes))
        multiple = draw(st.sampled_from([1, 2] if spill or "chunks" in kinds else [1]))
        if above is not None:
            equal = spill or write == "back" or any(tier.promotion == "move" for tier in tiers)
            multiple = above.multiple if equal else multiple * above.multiple
        capacity = draw(st.sampled_from([None, *range(1, 13)]))
        policy = "lru" if capacity is None else draw(st.sampled_from(["lru", "lru", "fifo", "keep"]))
        watermark: dict[str, Any] = {}
        if capacity is not None and capacity > 1 and policy != "keep" and draw(st.integers(0, 3)) == 0:
            watermark = {"high": draw(st.integers(2, capacity))}
            if draw(st.booleans()):
                watermark["low"] = draw(st.integers(0, watermark["high"] - 1))
            else:
                watermark["ratio"] = draw(st.sampled_from([0.1, 0.25, 0.5, 1.0]))
        promotion = "none" if spill or level == levels - 1 else draw(st.sampled_from(promotions))
        spares = "batch" not in kinds or promotion == "move" or draw(st.booleans())
        tiers.append(
            Settings(
                capacity=capacity,
                policy=policy,
                multiple=multiple,
                write=write,
                promotion=promotion,
                touch_on=draw(st.sampled_from(["request", "hit", "lookup", "never"])),
                order=draw(st.sampled_from(["tail-first", "head-first"])),
                spares=spares,
                whole=spares and draw(st.integers(0, 3)) == 0,  # neither goes with a batch
                **watermark,
            )
        )
    return Shape(tuple(tiers), draw(st.sampled_from(["any", "once"])), spill, draw(st.integers(1, 3)))


@pytest.mark.parametrize("kind", ["plain", "chunks", "moves", "temporary", "batch", "spill", "all"])
@settings(deadline=None)
@given(st.data(), requests(max_requests=25, max_blocks=10), st.lists(st.integers(0, 2), min_size=25, max_size=25))
def test_hits_credits_residents_and_recency_are_those_of_the_model(
    kind: str, data: st.DataObject, asked: list[Keys], workers: list[int]
) -> None:
    shape = data.draw(shapes(kind))
    pair = Pair(shape)
    for worker, keys in zip(workers, asked, strict=False):
        pair.serve(worker % shape.workers, keys)
    pair.drain()


BACK = Settings(5, write="back")
CASES: dict[str, tuple[Shape, list[tuple[int, list[int]]]]] = {
    "a part of a chunk is copied up": (
        Shape((Settings(2), Settings(multiple=2))),
        [(0, [1, 2]), (0, [3, 4]), (0, [1, 2])],
    ),
    "a hit moves past the middle tier": (
        Shape((Settings(1, promotion="move"), Settings(1, write="back", promotion="move"), BACK)),
        [(0, [1]), (0, [2]), (0, [3]), (0, [1])],
    ),
    "a hit moves past a middle tier that copies": (
        Shape((Settings(1, write="none", promotion="move"), Settings(1, write="none"), Settings(1))),
        [(0, [1]), (0, [1])],
    ),
    "a batch may evict what it has hit": (
        Shape((Settings(), Settings(1, promotion="none", spares=False))),
        [(0, [1]), (0, [1, 4])],
    ),
    "a source that nothing spares is pushed out by what comes down": (
        Shape((Settings(1), Settings(1, write="back", spares=False))),
        [(0, [1]), (0, [2]), (0, [1])],
    ),
    "what passes through a tier that never evicts needs room before the rest": (
        Shape((Settings(1, "keep", promotion="temporary"), Settings()), workers=2),
        [(0, [3]), (1, [3, 10])],
    ),
    "a watermark evicts although nothing is stored": (
        Shape((Settings(3, multiple=2, promotion="none", high=2, ratio=0.1), Settings(3, multiple=2, write="back"))),
        [
            (0, [1, 4, 13, 41]),
            (0, [1, 4, 13, 40, 121, 365]),
            (0, [1, 4, 13, 40, 121, 364]),
            (0, [1, 4, 13, 41]),
        ],
    ),
    "a block in a batch that finds no room is used nevertheless": (
        Shape((Settings(2, order="head-first", spares=False, high=2, ratio=0.1), Settings(spares=False)), walk="once"),
        [(0, [1, 4]), (0, [1, 4])],
    ),
    "spilled chunks of two blocks": (
        Shape((Settings(None, multiple=2, write="spill", promotion="none"),) * 2, spill=True),
        [(0, [1, 2]), (0, [1, 2, 3, 4])],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_that_once_differed(name: str) -> None:
    shape, served = CASES[name]
    pair = Pair(shape)
    for worker, keys in served:
        pair.serve(worker, np.array(keys, dtype=np.uint64))
    pair.drain()


def replayed(run: Callable[..., None], asked: list[Keys]) -> np.ndarray:
    """Rows of counts for these requests, with every fact that a policy may ask for."""
    keys = np.concatenate(asked)
    offsets = np.cumsum([0, *map(len, asked)]).astype(np.int64)
    rows = np.zeros((len(asked), len(COUNTS)), dtype=np.int32)
    draws = np.random.default_rng(1)
    run(
        keys,
        offsets,
        np.diff(offsets).astype(np.int32),
        rows,
        time_ns=np.cumsum(draws.integers(0, 40_000_000_000, len(asked))),
        facts=draws.integers(0, 4, (len(asked), len(FACTS)), dtype=np.int32),
        next_use=next_uses(keys, offsets),
    )
    return rows


def next_uses(keys: Keys, offsets: np.ndarray) -> np.ndarray:
    """For each block the request that asks for it next."""
    uses = np.full(len(keys), 2**31 - 1, dtype=np.int32)
    seen: dict[int, int] = {}
    for request in reversed(range(len(offsets) - 1)):
        for at in range(offsets[request], offsets[request + 1]):
            uses[at] = seen.get(int(keys[at]), uses[at])
            seen[int(keys[at])] = request
    return uses


@pytest.mark.parametrize("order", ["tail-first", "head-first"])
@pytest.mark.parametrize("spec", load_registry(autoload=False).specs(EvictionPolicySpec), ids=lambda spec: spec.name)
@settings(max_examples=25, deadline=None)
@given(requests(max_requests=25, max_blocks=10), st.integers(1, 16))
def test_a_stack_of_one_tier_is_a_plain_tier(
    spec: EvictionPolicySpec, order: str, asked: list[Keys], capacity: int
) -> None:
    """Under every policy: the same counts for each request, the same events, the same residents (semantics §5.1)."""
    params = spec.parse_params({})
    logs = [EventLog(), EventLog()]
    tier = Tier(spec.load()(PolicyContext(capacity, 7), **params), order=order, log=logs[0])
    policy = spec.load()(PolicyContext(capacity, 7), **params)
    store = make_store(Settings(capacity, order=order, promotion="none"), 0, 0, logs[1], policy)
    plain = OrderReplay([tier], log=logs[0], keep_events=True)
    stacked = TieredReplay([TierStack([[store]])], log=logs[1], keep_events=True)
    tier_rows = np.zeros((len(asked), len(tier_columns(1))), dtype=np.int32)

    def run(keys: Keys, offsets: Any, cacheable: Any, rows: Any, **columns: Any) -> None:
        stacked.run_tiers(keys, offsets, cacheable, rows, tier_rows, **columns)

    rows = replayed(run, asked)
    assert dict(zip(COUNTS, rows.T.tolist(), strict=True)) == dict(
        zip(COUNTS, replayed(plain.run, asked).T.tolist(), strict=True)
    )
    assert tier_rows[:, 0].tolist() == rows[:, COUNTS.index("hit_blocks")].tolist()
    assert read(logs[1]) == read(logs[0])
    assert store.residents() == tier.residents()
