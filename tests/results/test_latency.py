"""Latencies, goodput and throughput from made matrices of times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timings import MS, SECOND, columns_of, facts, record_of, times_of, totals_of

from kvbench.replays.timedfacts import LinkFacts, WorkerFacts
from kvbench.results.latency import LATENCIES, Latencies, request_latencies
from kvbench.results.timed import TimedTotals
from kvbench.results.window import Window

TIME = st.integers(0, 10**12)
ROW = st.fixed_dictionaries(
    {
        **dict.fromkeys(("arrival", "queue", "fetch", "prefill", "decode"), TIME),
        "output": st.integers(1, 50),
        "status": st.sampled_from(["done", "done", "done", "rejected", "unfinished"]),
    }
)
ROWS = st.lists(ROW, max_size=40)


@given(ROWS)
def test_queue_fetch_and_prefill_add_up_to_ttft(rows: list[dict[str, Any]]) -> None:
    done = [row for row in rows if row["status"] == "done"]
    found = Latencies.of(times_of(done))
    assert (found.queue_ns + found.fetch_ns + found.prefill_ns == found.ttft_ns).all()
    assert (found.ttft_ns + found.decode_ns == found.e2e_ns).all()
    record = record_of(rows)
    assert record["ttft_ns"]["n"] == len(done)
    shares = [share for share in record["ttft_shares"].values() if share is not None]
    assert not shares or math.fsum(shares) == pytest.approx(1)


@given(ROWS, st.integers(1, 7))
def test_figures_do_not_depend_on_the_batches(rows: list[dict[str, Any]], batch: int) -> None:
    slo = {"ttft": 10**12, "tpot": 10**10}
    assert record_of(rows, slo=slo, batch=batch) == record_of(rows, slo=slo)


@given(ROWS, TIME, TIME, TIME)
def test_goodput_is_what_a_plain_loop_counts(rows: list[dict[str, Any]], ttft: int, tpot: int, e2e: int) -> None:
    good = met = 0
    done = [row for row in rows if row["status"] == "done"]
    for row in done:
        first = row["queue"] + row["fetch"] + row["prefill"]
        gap = row["decode"] / (row["output"] - 1) if row["output"] > 1 else 0
        met += gap <= tpot
        good += first <= ttft and gap <= tpot and first + row["decode"] <= e2e
    goodput = record_of(rows, slo={"ttft": ttft, "tpot": tpot, "e2e": e2e})["goodput"]
    assert (goodput["requests"], goodput["slo"]["tpot"]["met"]) == (good, met)
    assert goodput["share_of_done"] == (good / len(done) if done else None)
    assert goodput["share_of_arrived"] == (good / len(rows) if rows else None)


def test_limits_are_inclusive_and_without_objectives_there_is_no_goodput() -> None:
    rows = [{"prefill": 10, "decode": 20, "output": 3}]
    assert record_of(rows, slo={"ttft": 10, "tpot": 10, "e2e": 30})["goodput"]["requests"] == 1
    for name, limit in {"ttft": 9, "tpot": 9, "e2e": 29}.items():
        assert record_of(rows, slo={name: limit})["goodput"]["requests"] == 0
    assert record_of(rows)["goodput"] is None


def test_h_a_latency_counts_from_intended_arrival() -> None:
    """User report H-a: service 1 s, ten arrivals every 0.5 s."""
    rows = [{"arrival": k * SECOND // 2, "queue": k * SECOND // 2, "prefill": SECOND} for k in range(10)]
    found = record_of(rows)["ttft_ns"]
    assert (found["min"], found["max"], found["mean"]) == (SECOND, 5.5 * SECOND, 3.25 * SECOND)


def test_h_b_simultaneous_prefills_average_half_of_all_and_one() -> None:
    """User report H-b: four at once, 1 s each."""
    found = record_of([{"queue": k * SECOND, "prefill": SECOND} for k in range(4)])["ttft_ns"]
    assert (found["mean"], found["p50"]) == (2.5 * SECOND, 2.5 * SECOND)


def test_h_i_a_missing_latency_is_excluded_and_counted() -> None:
    """User report H-i: an answer of one token has no TPOT; failures are no zeros."""
    rows = [{"prefill": 5, "decode": 30, "output": 4}, {"prefill": 5}, {"status": "rejected"}, {"status": "unfinished"}]
    record = record_of(rows)
    assert (record["tpot_ns"]["n"], record["tpot_ns"]["missing"], record["tpot_ns"]["mean"]) == (1, 1, 10)
    assert (record["ttft_ns"]["n"], record["ttft_ns"]["min"]) == (2, 5)
    ttft, tpot, e2e = request_latencies(times_of(rows))
    assert ttft.tolist() == [5, 5, -1, -1]
    assert e2e.tolist() == [35, 5, -1, -1]
    assert np.isnan(tpot).tolist() == [False, True, True, True]


def test_itl_is_pooled_over_tokens_and_tpot_is_a_mean_of_requests() -> None:
    record = record_of([{"decode": 10, "output": 2}, {"decode": 900, "output": 10}])
    assert record["itl_ns"] == {"n": 10, "mean": 91.0}
    assert record["tpot_ns"]["mean"] == 55.0


def test_every_request_has_one_status_and_a_run_without_requests_has_no_figures() -> None:
    rows = [{}, {}, {"status": "rejected", "need_blocks": 9_000}, {"status": "unfinished"}]
    totals = totals_of(rows, window=Window(first_request=1))
    requests = totals.record(facts(0))["requests"]
    assert requests == {"arrived": 3, "done": 1, "rejected": 1, "unfinished": 1, "not_counted": 1}
    assert sum(totals.statuses.values()) == 4
    assert totals.rejected_examples(None) == ["request 2 needs 9,000 GPU blocks"]
    assert totals.rejected_examples(800) == ["request 2 needs 9,000 GPU blocks, and a worker has 800"]
    empty = record_of([])
    assert {empty[f"{name}_ns"]["p99"] for name in LATENCIES} == {None}
    assert empty["throughput"]["requests_per_s"] is None


def test_h_g_warm_up_and_what_is_outside_the_window_are_in_no_figure() -> None:
    """User reports H-g and H-h: requests 0 and 1 warm up; of the others those in [2 s, 4 s) count."""
    rows = [{"arrival": k * SECOND, "prefill": k * MS, "decode": SECOND} for k in range(6)]
    window = Window(first_request=2, start_ns=2 * SECOND, end_ns=4 * SECOND)
    times = times_of(rows)
    counted = TimedTotals(window).add(columns_of(times), times, np.arange(len(times)))
    assert counted.tolist() == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    record = record_of(rows, window=window, slo={"ttft": 2 * MS})
    assert (record["ttft_ns"]["n"], record["ttft_ns"]["mean"], record["goodput"]["requests"]) == (2, 2.5 * MS, 1)
    inside = record["window_throughput"]
    assert (inside["requests"], inside["duration_ns"]) == (2, 2 * SECOND), "1 and 2 end in it, whenever they arrived"
    assert record_of(rows)["window_throughput"] is None


def test_hit_rates_are_of_requests_that_were_looked_up() -> None:
    times = times_of([{}, {"status": "rejected"}, {"status": "unfinished"}, {"status": "unfinished", "admitted_ns": 3}])
    assert TimedTotals().add(columns_of(times), times, np.arange(len(times))).tolist() == [True, False, False, True]


def test_throughput_is_over_first_arrival_to_last_end() -> None:
    rows = [{"arrival": SECOND, "prefill": SECOND, "output": 7}, {"arrival": 2 * SECOND, "prefill": 3 * SECOND}]
    found = record_of([*rows, {"arrival": 0, "status": "unfinished"}])["throughput"]
    assert found["duration_ns"] == 4 * SECOND
    assert (found["requests_per_s"], found["input_tokens_per_s"], found["output_tokens_per_s"]) == (0.5, 5.0, 2.0)
    assert found["total_tokens_per_s"] == 7.0


def test_h_d_work_is_what_was_computed_and_reuse_after_preemption_is_none() -> None:
    """User report H-d: ten tokens, four of which hit; one request computes its six, another twelve."""
    times = times_of([{"computed_tokens": 6}, {"computed_tokens": 12, "preemptions": 1, "readmitted_blocks": 2}])
    totals = TimedTotals()
    totals.add(columns_of(times, hit_blocks=4), times, np.arange(len(times)))
    work = totals.record(facts(0))["work"]
    assert (work["computed_tokens"], work["recomputed_tokens"], work["preempted_requests"]) == (18, 6, 1)
    assert work["recomputed_share"] == pytest.approx(1 / 3)


def test_workers_and_links_are_as_busy_as_the_run_is_long() -> None:
    """A run of four seconds from the first arrival on."""
    workers = [WorkerFacts(0, 10, 3 * SECOND, 6_000, 20, 0, 0), WorkerFacts(1, 10, SECOND, 500, 20, 1, 0)]
    links = [LinkFacts("pcie", 0, 4_000, 2 * SECOND, 4, 2_000.0)]
    record = totals_of([{"arrival": SECOND}]).record(facts(5 * SECOND, workers, links))
    assert [each["utilisation"] for each in record["workers"]["each"]] == [0.75, 0.25]
    assert [each["prefill_tokens_per_busy_s"] for each in record["workers"]["each"]] == [2_000, 500]
    assert (record["workers"]["utilisation"], record["workers"]["max_over_mean_busy"]) == (0.5, 1.5)
    assert (record["links"][0]["utilisation"], record["links"][0]["achieved_bytes_per_s"]) == (0.5, 2_000)


def test_the_stop_rule_looks_at_the_requests_that_count() -> None:
    rows = [{"prefill": 10**6}] * 1_000 + [{"prefill": 10, "arrival": SECOND}] * 1_000
    assert not totals_of(rows).converged(0.1)
    assert totals_of(rows, window=Window(first_request=1_000)).converged(0.1)
