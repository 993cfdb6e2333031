"""The sets of keys ever seen tell first uses from evictions, all three forms alike (semantics §10.2)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache import ORDERS, DenseSeen, ExactSeen, Tier, make_seen
from kvbench.eviction import PolicyContext
from kvbench.eviction.lru import Lru
from kvbench.replays.order import COUNTS, OrderReplay

STATES = ("infinite_hit_blocks", "miss_first_seen_blocks", "miss_evicted_blocks", "miss_truncated_blocks")


def replay(trace, tier, seen):
    keys = np.array([key for request in trace for key in request], dtype=np.uint64)
    offsets = np.cumsum([0, *map(len, trace)], dtype=np.int64)
    rows = np.zeros((len(trace), len(COUNTS)), dtype=np.int32)
    OrderReplay([tier], seen=seen).run(keys, offsets, np.diff(offsets).astype(np.int32), rows)
    return [dict(zip(COUNTS, row, strict=True)) for row in rows.tolist()]


def lru(capacity, order="tail-first", dense=True):
    return Tier(Lru(PolicyContext(capacity)), order=order, dense=dense)


@given(st.lists(st.lists(st.integers(0, 30), max_size=12, unique=True), max_size=30), st.integers(1, 16))
@pytest.mark.parametrize("order", ORDERS)
def test_all_forms_and_a_dict_agree_on_what_was_seen(order, trace, capacity):
    tier = lru(capacity, order)
    forms = [(tier, make_seen(True, tier.direct_table))]
    forms += [(lru(capacity, order, dense), make_seen(dense)) for dense in (True, False)]
    assert [type(seen).__name__ for _, seen in forms] == ["TableSeen", "DenseSeen", "ExactSeen"]
    results = [replay(trace, *form) for form in forms]
    assert results[0] == results[1] == results[2]
    known: set[int] = set()
    for request, row in zip(trace, results[0], strict=True):
        assert row["miss_first_seen_blocks"] == len(set(request) - known)
        assert row["infinite_hit_blocks"] == [*(key in known for key in request), False].index(False)
        known |= set(request)
    assert {seen.distinct for _, seen in forms} == {len(known)}


@pytest.mark.parametrize("seen", [DenseSeen, ExactSeen])
def test_the_last_fate_of_a_block_is_why_it_is_missing(seen):
    rows = replay([[0, 1, 2], [3, 4], [0, 1, 2], [2]], lru(2, dense=seen is DenseSeen), seen())
    assert [[row[state] for state in STATES] for row in rows] == [
        [0, 3, 0, 0],
        [0, 2, 0, 0],
        [3, 0, 2, 1],  # block 2 was left out by its first request, the others were stored and evicted
        [1, 0, 0, 1],
    ]


@given(st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**64 - 1]), max_size=300, unique=True))
def test_any_key_is_seen_once_however_odd(keys):
    seen = ExactSeen()
    rows = replay([[key] for key in keys * 2], lru(1, dense=False), seen)
    assert sum(row["miss_first_seen_blocks"] for row in rows) == seen.distinct == len(keys)


def test_an_exact_set_takes_at_most_16_bytes_a_key():
    seen = ExactSeen()
    tier = lru(1, dense=False)
    for count in range(20_000, 600_000, 7_001):
        replay([range(seen.distinct * 3, 3 * count, 3)], tier, seen)
        assert seen.distinct == count
        assert seen.nbytes <= 16 * count


def test_where_ids_are_dense_a_set_takes_a_byte_a_block_or_nothing():
    tier, dense = lru(1), DenseSeen()
    table = make_seen(True, tier.direct_table)
    replay([range(10_000)], lru(1), dense)
    replay([range(10_000)], tier, table)
    assert (table.nbytes, dense.nbytes) == (0, 10_000)
