"""Semantics §13 through the public door, on random small traces."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.plugins import Distribution, load_registry
from kvbench.results.requests import MISS_REASONS, TIER_REASONS, TIMED_REASONS
from kvbench.routing import PythonRouter

subset = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True)
# The chain that ends in a node of a binary tree: every id brings all its ancestors.
chain = st.integers(1, 2**8).map(lambda leaf: [leaf >> up for up in reversed(range(leaf.bit_length()))])
traces = st.lists(subset | chain, min_size=1, max_size=25)
chains = st.lists(chain, min_size=1, max_size=25)
capacities = st.integers(1, 30)
orders = st.sampled_from(["tail-first", "head-first", "access"])

FEW = settings(max_examples=50)


def partial_of(rows):
    """Tokens that each last block lacks; every third row's is full."""
    return [len(row) * 7 % 3 * 4 for row in rows]


def column(result, name):
    return result.requests[name].to_pylist()


def replayed(trace, **kwargs):
    return kvbench.replay(trace, keep_requests=True, registry=load_registry(autoload=False), **kwargs)


@FEW
@given(traces, st.sampled_from(["tail-first", "access"]))
def test_lru_hits_never_fall_as_capacity_grows(make_trace, rows, order):
    """Request by request, also where a request does not fit (semantics §5.4)."""
    trace = make_trace(rows)
    before = [0] * len(rows)
    for capacity in (1, 2, 3, 5, 8, 13, 21, 34):
        hits = column(replayed(trace, capacity=capacity, order=order), "hit_blocks")
        assert all(more >= less for more, less in zip(hits, before, strict=True))
        before = hits


@FEW
@given(chains)
def test_an_infinite_cache_hits_references_less_distinct(make_trace, rows):
    blocks = replayed(make_trace(rows, partial_of(rows)), tails="keep").summary["blocks"]
    assert blocks["hit"] == blocks["asked"] - blocks["distinct"] == blocks["infinite_hit"]
    assert blocks["distinct"] == len({key for row in rows for key in row}) == blocks["resident_at_end"]


@FEW
@given(traces, capacities, orders, st.integers(0, 2**63).map(lambda n: 2 * n + 1), st.integers(0, 10**15))
def test_neither_other_names_nor_another_time_changes_a_hit(make_trace, rows, capacity, order, factor, shift):
    names = [[key * factor % 2**64 for key in row] for row in rows]
    later = pa.array([shift + i for i in range(len(rows))], pa.int64())
    result = replayed(make_trace(rows), capacity=capacity, order=order)
    for other in (make_trace(names), make_trace(rows, arrival_ns=later)):
        again = replayed(other, capacity=capacity, order=order)
        assert again.summary == result.summary
        assert again.requests.drop_columns("arrival_ns").equals(result.requests.drop_columns("arrival_ns"))


@FEW
@given(traces, capacities, orders, st.sampled_from(["keep", "drop"]), st.integers(1, 3))
def test_hits_and_misses_by_reason_add_up_to_what_was_asked(make_trace, rows, capacity, order, tails, workers):
    """Row by row and in the summary; every rate is a share (semantics §4.2, §10)."""
    router = {"router": "random"} if workers > 1 else {}
    result = replayed(
        make_trace(rows, partial_of(rows)), capacity=capacity, order=order, tails=tails, workers=workers, **router
    )
    reasons = [column(result, name) for name in MISS_REASONS if name not in (*TIER_REASONS, *TIMED_REASONS)]
    hits = column(result, "hit_blocks")
    for row, hit, *missed in zip(rows, hits, *reasons, strict=True):
        assert hit + sum(missed) == len(row)
        assert min(hit, *missed) >= 0
    summary = result.summary
    assert summary["blocks"]["hit"] + sum(summary["misses"].values()) == summary["blocks"]["asked"]
    assert summary["requests"]["arrived"] == summary["requests"]["done"] + summary["requests"]["rejected"]
    rates = [*summary["rates"].values(), *summary["infinite_rates"].values()]
    assert all(0 <= rate <= 1 for rate in rates if rate is not None)
    assert all(held["resident_blocks"] <= capacity for held in summary["workers"]["each"])
    assert all(h <= t for h, t in zip(column(result, "hit_tokens"), column(result, "input_tokens"), strict=True))


@FEW
@given(traces, capacities, orders)
def test_without_a_seen_set_the_hits_stay_and_two_figures_are_null(make_trace, rows, capacity, order):
    """Semantics §10.2."""
    known = replayed(make_trace(rows), capacity=capacity, order=order)
    off = replayed(make_trace(rows), capacity=capacity, order=order, seen="off")
    null = {"infinite_hit_blocks", "miss_first_seen_blocks", "miss_evicted_blocks", "miss_truncated_blocks"}
    for name in known.requests.column_names:
        if name in null:
            assert off.requests[name].null_count == len(rows)
        else:
            assert off.requests[name].equals(known.requests[name]), name
    assert off.rates == known.rates
    assert set(off.summary["infinite_rates"].values()) == {None}
    assert off.summary["blocks"]["distinct"] is off.summary["misses"]["evicted"] is None


class ToTheFirst(PythonRouter):
    def choose(self, request):
        return 0


class ToTheFirstPlugin:
    @kvbench.hookimpl
    def kvbench_router_policies(self):
        yield kvbench.RouterPolicySpec("to-the-first", ToTheFirst, "always worker 0")


@FEW
@given(traces, capacities, orders, st.sampled_from([2, 3, 70]))
def test_workers_that_get_nothing_change_nothing(make_trace, rows, capacity, order, workers):
    registry = load_registry([(ToTheFirstPlugin(), Distribution("plugin", "1"))], autoload=False)
    alone = replayed(make_trace(rows), capacity=capacity, order=order)
    among = kvbench.replay(
        make_trace(rows),
        capacity=capacity,
        order=order,
        workers=workers,
        router="to-the-first",
        registry=registry,
        keep_requests=True,
    )
    blocks, tokens = ["best_blocks", "predicted_blocks"], ["best_tokens", "predicted_tokens"]
    assert among.requests.drop_columns([*blocks, *tokens]).equals(alone.requests.drop_columns(blocks))
    assert among.rates == alone.rates
    assert among.summary["blocks"] == alone.summary["blocks"]


@FEW
@given(traces, capacities, orders)
def test_dense_numbers_and_any_numbers_give_the_same_result(make_trace, rows, capacity, order):
    number: dict[int, int] = {}
    dense = [[number.setdefault(key, len(number)) for key in row] for row in rows]
    belady = "off" if capacity == "infinite" else "on"
    fast = replayed(make_trace(dense, dense=True), capacity=capacity, order=order, belady=belady)
    assert fast.requests.equals(replayed(make_trace(dense), capacity=capacity, order=order, belady=belady).requests)


def test_a_trace_without_ids_has_no_rates(make_trace):
    result = replayed(make_trace([[1], [1]]).drop_columns(["block_ids"]))
    assert set(result.rates.values()) == set(result.summary["infinite_rates"].values()) == {None}
    assert set(result.summary["misses"].values()) == {None}
    assert result.requests["hit_blocks"].null_count == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_folding_the_events_gives_the_state(mooncake, tmp_path, workers):
    """Semantics §7.1: what is stored was absent, what is deleted was there, and what is left is resident."""
    router = {"router": "round-robin"} if workers > 1 else {}
    summary = kvbench.replay(
        mooncake("synthetic"), capacity=3_000, workers=workers, events=str(tmp_path / "events.parquet"), **router
    ).summary
    held = [set() for _ in range(workers)]
    sequence = [0] * workers
    stored = 0
    for batch in pq.ParquetFile(tmp_path / "events.parquet").iter_batches():
        columns = (batch.column(name).to_pylist() for name in ("worker", "sequence", "kind", "key"))
        for worker, number, kind, key in zip(*columns, strict=True):
            assert number == sequence[worker]
            sequence[worker] += 1
            assert (key in held[worker]) == (kind == "DELETE")
            held[worker] ^= {key}
            stored += kind == "INSERT"
    assert [len(keys) for keys in held] == [worker["resident_blocks"] for worker in summary["workers"]["each"]]
    assert stored == summary["blocks"]["stored"]
    assert sum(sequence) - stored == summary["blocks"]["evicted"]
