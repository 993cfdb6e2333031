"""When requests arrive on the simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.config import load_config
from kvbench.errors import ConfigError, TraceError
from kvbench.plugins import load_registry
from kvbench.replays.arrivals import ArrivalBatch, Arrivals
from kvbench.replays.engine import keyed_trace
from kvbench.replays.plan import make_plan
from kvbench.replays.serveplan import ServePlan
from kvbench.trace.reader import open_trace
from kvbench.units import NS_PER_S

MakeTrace = Callable[..., pa.Table]
FIXED = "fixed,prefill_ms_per_token=1,decode_ms=1"
SECOND = NS_PER_S


def arrivals_of(source: pa.Table | Path, **settings: Any) -> tuple[Arrivals, ArrivalBatch]:
    """The arrivals of a run, and all its requests as one batch."""
    config = load_config(None, {"compute": FIXED, **settings}).cells()[0]
    trace = open_trace(source)
    plan = make_plan(config, load_registry(autoload=False), trace)
    assert plan.serving is not None
    arrivals = Arrivals(plan.serving, keyed_trace(trace, [plan]), config.seed)
    return arrivals, ArrivalBatch.join(list(arrivals.batches()))


def timed(arrival_ns: Any, **columns: pa.Array) -> pa.Table:
    """A trace without ids of requests that arrive then."""
    tokens = pa.array(np.ones(len(arrival_ns), np.uint32))
    return pa.table({"arrival_ns": pa.array(arrival_ns, pa.int64()), "input_tokens": tokens, **columns})


def at(arrival_ns: Any, **settings: Any) -> list[int]:
    """When requests that the trace has at ``arrival_ns`` arrive."""
    found: list[int] = arrivals_of(timed(arrival_ns), **settings)[1].arrival_ns.tolist()
    return found


# -- the trace's times -----------------------------------------------------------------------------


def test_the_clock_starts_at_the_first_arrival_whatever_the_origin_of_the_trace() -> None:
    epoch = 1_700_000_000 * SECOND
    assert at([epoch, epoch + 5, epoch + 7]) == at([0, 5, 7]) == [0, 5, 7]


def test_h_k_a_rate_divides_the_gaps_from_the_first_arrival() -> None:
    seconds = [1000 * SECOND, 1001 * SECOND, 1003 * SECOND]
    assert at(seconds, arrivals="rate=2") == [0, SECOND // 2, SECOND * 3 // 2]


def test_h_j_a_million_gaps_do_not_drift() -> None:
    gaps = np.arange(1_000_000) * 100_000_000
    assert at(gaps)[-1] == 99_999_900_000_000
    assert at(gaps, arrivals="rate=3")[-1] == 99_999_900_000_000 // 3


@given(
    st.lists(st.integers(0, 2**55), min_size=1).map(sorted),
    st.floats(0.5, 1e6, allow_nan=False) | st.sampled_from([1.0, 2.0, 0.1]),
)
def test_each_arrival_is_its_exact_quotient_rounded_down(arrival_ns: list[int], rate: float) -> None:
    exact = Fraction(str(rate))
    if (arrival_ns[-1] - arrival_ns[0]) / exact > 2**60:
        rate, exact = 1.0, Fraction(1)
    assert at(arrival_ns, arrivals={"rate": rate}) == [int((each - arrival_ns[0]) / exact) for each in arrival_ns]


def test_a16_milliseconds_taken_for_seconds_are_a_thousand_times_as_far_apart() -> None:
    stamps = np.array([0, 3, 4])
    wrong, right = at(stamps * SECOND), at(stamps * 1_000_000)
    assert wrong == [1000 * each for each in right]


def test_an_arrival_beyond_the_clock_is_named() -> None:
    with pytest.raises(ConfigError, match="row 2: arrives 9,000,000,000 s after the first"):
        at([0, 9_000_000_000 * SECOND])
    with pytest.raises(ConfigError, match="row 2: arrives"):
        at([0, 2**59], arrivals="rate=0.001")


# -- jitter ----------------------------------------------------------------------------------------


class Cut:
    """A keyed trace whose batches are cut at will."""

    def __init__(self, whole: ArrivalBatch, cuts: list[int]) -> None:
        edges = sorted({0, len(whole.rows), *(cut % (len(whole.rows) + 1) for cut in cuts)})
        self.items = [whole.keyed.take(np.arange(*edge)) for edge in pairwise(edges)]
        self.trace = SimpleNamespace(name="cut")

    def batches(self) -> Any:
        yield from self.items


@given(st.data())
def test_jitter_sorts_the_same_requests_the_same_way_however_batches_are_cut(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=60))
    times = np.cumsum(gaps)
    ids = [[3 * row + step for step in range(row % 4)] for row in range(len(times))]
    table = timed(times).set_column(1, "input_tokens", pa.array([len(row) or 1 for row in ids], pa.uint32()))
    table = table.append_column("token_ids", pa.array([row or [0] for row in ids], pa.list_(pa.uint32())))
    settings = {"arrivals": "jitter=50ns", "seed": data.draw(st.integers(0, 3)), "block_tokens": 1}
    config = load_config(None, {"compute": FIXED, **settings}).cells()[0]
    trace = open_trace(table, block_tokens=1)
    plan = make_plan(config, load_registry(autoload=False), trace)
    serving = plan.serving
    assert serving is not None
    keyed = keyed_trace(trace, [plan])
    plain = replace(serving, arrivals=replace(serving.arrivals, jitter_ns=0))
    whole = ArrivalBatch.join(list(Arrivals(plain, keyed, config.seed).batches()))
    cut = Cut(whole, data.draw(st.lists(st.integers(0, 60), max_size=8)))
    moved = ArrivalBatch.join(list(Arrivals(serving, cut, config.seed).batches()))  # type: ignore[arg-type]

    assert sorted(moved.rows.tolist()) == whole.rows.tolist()
    pairs = list(zip(moved.arrival_ns.tolist(), moved.rows.tolist(), strict=True))
    assert pairs == sorted(pairs)
    delays = moved.arrival_ns - whole.arrival_ns[moved.rows]
    assert (delays >= 0).all()
    assert (delays < 50).all()
    for place, row in enumerate(moved.rows.tolist()):
        mine = moved.keyed.keys.keys[slice(*moved.keyed.keys.offsets[place : place + 2])]
        assert mine.tolist() == whole.keyed.keys.keys[slice(*whole.keyed.keys.offsets[row : row + 2])].tolist()
    assert moved.keyed.batch.column("token_ids").to_pylist() == [(ids[row] or [0]) for row in moved.rows]
    again = ArrivalBatch.join(list(Arrivals(serving, keyed, config.seed).batches()))
    assert again.arrival_ns.tolist() == moved.arrival_ns.tolist()


def test_jitter_is_uniform_and_by_the_seed() -> None:
    table = timed(np.zeros(10_000, np.int64))
    first, second = (arrivals_of(table, arrivals="jitter=1s", seed=seed)[1].arrival_ns for seed in (1, 2))
    assert first.mean() == pytest.approx(SECOND / 2, rel=0.02)
    assert np.histogram(first, 10, (0, SECOND))[0].min() > 900
    assert (first != second).any()


def test_no_more_rows_wait_than_jitter_can_reorder() -> None:
    times = np.arange(4_000) * 10
    arrivals, whole = arrivals_of(timed(times), arrivals="jitter=500ns")
    keyed = Cut(whole.take(np.argsort(whole.rows)), list(range(0, 4_000, 20)))
    plan: ServePlan = arrivals._plan
    sizes = [len(batch.rows) for batch in Arrivals(plan, keyed, 0).batches()]  # type: ignore[arg-type]
    assert sum(sizes) == 4_000
    assert max(sizes) <= 2 * 50 + 20


def test_coarse_timestamps_are_told_unless_they_are_spread(mooncake: Callable[[str], Path]) -> None:
    arrivals, _ = arrivals_of(mooncake("conversation"), tails="keep")
    (caution,) = arrivals.cautions()
    assert "90% of its requests" in caution
    assert "jitter=3s" in caution
    assert arrivals_of(mooncake("conversation"), arrivals="jitter=3s")[0].cautions() == []
    assert arrivals_of(mooncake("synthetic"))[0].cautions() == []


def test_requests_that_all_arrive_at_once_are_meant_to() -> None:
    assert arrivals_of(timed([7, 7, 7, 7]))[0].cautions() == []


# -- closed loops ----------------------------------------------------------------------------------


def turns(sessions: list[str | None], think_ns: list[int | None] | None = None) -> pa.Table:
    columns = {"session_id": pa.array(sessions, pa.string())}
    if think_ns is not None:
        columns["think_time_ns"] = pa.array(think_ns, pa.int64())
    return timed([6 * SECOND * number for number in range(len(sessions))], **columns)


def test_a31_a_turn_waits_for_the_one_before_and_the_think_time_of_its_row() -> None:
    _, found = arrivals_of(turns(["s", "s"], [None, 2 * SECOND]), arrivals="session")
    assert found.arrival_ns.tolist() == [0, -1]
    assert found.session.tolist() == [0, 0]
    assert found.wait_ns.tolist() == [0, 2 * SECOND]
    _, open_loop = arrivals_of(turns(["s", "s"], [None, 2 * SECOND]))
    assert open_loop.arrival_ns.tolist() == [0, 6 * SECOND]


def test_a31_without_end_times_the_think_time_is_said_to_be_unknown() -> None:
    with pytest.raises(ConfigError, match=r"think time is unknown.*think=5s"):
        arrivals_of(turns(["s", "s"]), arrivals="session")
    with pytest.raises(TraceError, match=r"row 3, think_time_ns.*unknown.*think=5s"):
        arrivals_of(turns(["s", "t", "s"], [None, None, None]), arrivals="session")


def test_a_pause_is_the_given_one_where_the_trace_has_none() -> None:
    table = turns(["s", "s", "s", None, None, "t"], [None, 7, None, None, None, None])
    _, found = arrivals_of(table, arrivals="session,think=5s,rate=2")
    assert found.session.tolist() == [0, 0, 0, -1, -1, 1]
    assert found.wait_ns.tolist() == [0, 7, 5 * SECOND, 0, 0, 0]
    assert found.arrival_ns.tolist() == [0, -1, -1, 9 * SECOND, 12 * SECOND, 15 * SECOND]


def test_a_session_goes_on_over_batches() -> None:
    _, whole = arrivals_of(turns(["s", "t", "s", "t", "s"], [1, 2, 3, 4, 5]))
    config = load_config(None, {"compute": FIXED, "arrivals": "session"})
    plan = make_plan(config, load_registry(autoload=False), open_trace(turns(["s"], [0]))).serving
    assert plan is not None
    found = ArrivalBatch.join(list(Arrivals(plan, Cut(whole, [1, 2, 4]), 0).batches()))  # type: ignore[arg-type]
    assert found.session.tolist() == [0, 1, 0, 1, 0]
    assert found.wait_ns.tolist() == [0, 0, 3, 4, 5]


def test_with_a_fixed_concurrency_the_trace_gives_the_order_alone() -> None:
    assert at([0, 5, 5], arrivals="concurrency,concurrency=2") == [-1, -1, -1]


# -- lengths and limits ----------------------------------------------------------------------------


def test_a23_an_answer_of_no_token_stays_one_of_none_and_an_unknown_one_has_one() -> None:
    _, found = arrivals_of(timed([0, 1, 2], output_tokens=pa.array([0, None, 9], pa.uint32())))
    assert found.output_tokens.tolist() == [0, 1, 9]
    assert arrivals_of(timed([0, 1]))[1].output_tokens.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("stop", "left", "stopped"),
    [
        ("rows=2", [0, 10], "row limit"),
        ("rows=3", [0, 10, 20], None),
        ("time=20ns", [0, 10], "time limit"),
        ("time=21ns", [0, 10, 20], None),
    ],
)
def test_a_limit_ends_the_run_where_it_cuts_something_off(stop: str, left: list[int], stopped: str | None) -> None:
    arrivals, found = arrivals_of(timed([0, 10, 20]), stop=stop)
    assert found.arrival_ns.tolist() == left
    assert arrivals.stopped == stopped


def test_a_time_limit_holds_for_arrivals_that_were_moved() -> None:
    arrivals, found = arrivals_of(timed(np.arange(1000)), arrivals="jitter=500ns", stop="time=600ns")
    assert found.arrival_ns.max() < 600
    assert arrivals.stopped == "time limit"
    _, whole = arrivals_of(timed(np.arange(1000)), arrivals="jitter=500ns")
    assert found.rows.tolist() == whole.rows[whole.arrival_ns < 600].tolist()
