"""The verdict on a run: whether it kept up with what arrived."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timings import SECOND, facts, record_of, totals_of

from kvbench.results.verdict import MIN_REQUESTS, Verdict, judge


def served(load: float, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Requests of one second at one server, at so much of its capacity; gaps are exponential (M/D/1)."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(SECOND / load, count)).astype(np.int64).tolist()
    free, rows = 0, []
    for arrival in arrivals:
        start = max(arrival, free)
        free = start + SECOND
        rows.append({"arrival": arrival, "queue": start - arrival, "prefill": SECOND})
    return rows


def verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = record_of(rows)["verdict"]
    return found


@pytest.mark.parametrize(
    ("load", "state"), [(0.3, "STABLE"), (0.5, "STABLE"), (0.9, "BACKLOGGED"), (1.2, "OVERLOADED"), (3, "OVERLOADED")]
)
def test_a_server_is_stable_with_room_and_overloaded_without(load: float, state: str) -> None:
    assert {verdict(served(load, 2_000, seed))["state"] for seed in range(3)} == {state}


def test_the_growth_of_the_wait_is_how_much_more_comes_than_can_be_served() -> None:
    found = verdict(served(1.5, 3_000))
    assert found["growth"] == pytest.approx(0.5, abs=0.05)
    assert found["drain"] == pytest.approx(0.5, abs=0.05)
    assert "ms of waiting" in found["reason"]


def test_a_burst_that_drains_is_a_backlog() -> None:
    """200 at once in the middle of a quiet hour."""
    quiet = [{"arrival": k * 10 * SECOND, "prefill": SECOND} for k in range(360)]
    burst = [{"arrival": 1_800 * SECOND, "queue": k * SECOND, "prefill": SECOND} for k in range(200)]
    assert verdict(quiet)["state"] == "STABLE"
    assert verdict([*quiet, *burst])["state"] == "BACKLOGGED"


def test_a_queue_at_the_end_of_arrivals_is_a_backlog() -> None:
    rows = [{"arrival": k * SECOND, "prefill": 10 * SECOND} for k in range(200)]
    rows[-1]["queue"] = 30 * SECOND
    found = verdict(rows)
    assert (found["state"], found["drain"]) == ("BACKLOGGED", pytest.approx(30 / 199))


def test_requests_that_never_came_to_be_admitted_wait_until_the_end() -> None:
    """Those that are done waited little: the run was cut while the others did."""
    done = [{"arrival": k * SECOND, "prefill": SECOND} for k in range(100)]
    left = [{"arrival": (100 + k) * SECOND, "status": "unfinished"} for k in range(200)]
    assert verdict(done)["state"] == "STABLE"
    found = totals_of([*done, *left]).record(facts(1_000 * SECOND))["verdict"]
    assert found["third_waits_ns"] == (0, 850.5 * SECOND, 750.5 * SECOND)
    assert found["state"] == "BACKLOGGED"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"arrival": k} for k in range(MIN_REQUESTS - 1)], "99 requests are too few"),
        ([{"queue": k} for k in range(MIN_REQUESTS)], "all requests arrive at once"),
        ([], "0 requests are too few"),
    ],
)
def test_there_is_none_where_nothing_can_be_said(rows: list[dict[str, Any]], reason: str) -> None:
    found = verdict(rows)
    assert found["state"] is None
    assert found["reason"].startswith(reason)


@given(st.randoms(use_true_random=False))
def test_it_does_not_depend_on_the_order_of_the_rows(random: Any) -> None:
    rows = served(1.1, 300)
    shuffled = rows.copy()
    random.shuffle(shuffled)
    assert _judged(shuffled) == _judged(rows)


def _judged(rows: list[dict[str, Any]]) -> Verdict:
    return judge(_column(rows, "arrival"), _column(rows, "queue"), float(SECOND))


def _column(rows: list[dict[str, Any]], name: str) -> npt.NDArray[np.int64]:
    return np.array([row[name] for row in rows], np.int64)
