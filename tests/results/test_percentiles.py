"""Percentiles by named methods, and intervals of means."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ArgumentError
from kvbench.replays.confidence import converged, mean_interval, t_quantile
from kvbench.results.percentiles import METHODS, PERCENTILES, distribution, percentile

VALUES = st.lists(st.integers(0, 10**13), min_size=1, max_size=300)


def test_the_99th_of_three_depends_on_the_method() -> None:
    values = np.array([10, 20, 30])
    assert percentile(values, 99, "nearest-rank") == 30
    assert percentile(values, 99, "linear") == pytest.approx(29.8)


def test_of_no_data_there_is_none() -> None:
    empty = np.zeros(0, np.int64)
    assert percentile(empty, 50) is None
    found = distribution(empty, missing=3)
    assert (found.pop("n"), found.pop("missing")) == (0, 3)
    assert set(found.values()) == {None}


def test_an_unknown_method_is_named_with_those_there_are() -> None:
    with pytest.raises(ArgumentError, match="'median' is unknown; choose one of linear, nearest-rank"):
        percentile(np.array([1]), 50, "median")


@given(VALUES)
def test_nearest_rank_is_the_value_at_its_rank_of_the_sorted_ones(values: list[int]) -> None:
    found = distribution(np.array(values), method="nearest-rank")
    for percent in PERCENTILES:
        assert found[f"p{percent}"] == sorted(values)[math.ceil(percent * len(values) / 100) - 1]


@given(VALUES)
def test_linear_is_between_the_neighbours_of_its_place(values: list[int]) -> None:
    found = distribution(np.array(values), method="linear")
    for percent in PERCENTILES:
        below, part = divmod(percent * (len(values) - 1), 100)
        low, high = (sorted(values)[min(at, len(values) - 1)] for at in (below, below + 1))
        assert found[f"p{percent}"] == pytest.approx(low + (high - low) * part / 100)


@given(VALUES, st.sampled_from(sorted(METHODS)))
def test_mean_and_deviation_are_those_of_the_standard_library(values: list[int], method: str) -> None:
    found = distribution(np.array(values), method=method)
    assert (found["n"], found["min"], found["max"]) == (len(values), min(values), max(values))
    assert found["mean"] == statistics.mean(values)
    assert found["std"] == pytest.approx(statistics.pstdev(values), abs=1e-3)


def test_a_mean_does_not_overflow() -> None:
    assert distribution(np.full(4, 2**62))["mean"] == 2**62


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [
        (1, 12.7062),
        (2, 4.30265),
        (3, 3.18245),
        (4, 2.77645),
        (9, 2.26216),
        (19, 2.09302),
        (30, 2.04227),
        (120, 1.97993),
    ],
)
def test_quantiles_of_students_t_are_those_of_printed_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-6 * quantile)


def test_the_interval_of_a_mean_is_students() -> None:
    mean, deviation, half = mean_interval([1.0, 2.0, 3.0])
    assert (mean, deviation) == (2.0, 1.0)
    assert half == pytest.approx(4.30265 / math.sqrt(3), abs=1e-5)
    assert mean_interval([7.0]) == (7.0, None, None)


def test_a_mean_has_converged_when_its_interval_is_narrow_and_never_with_few_values() -> None:
    rng = np.random.default_rng(0)
    values = rng.exponential(1e9, 20_000).astype(np.int64)
    assert converged(values, 0.1)
    assert not converged(values, 0.01)
    assert not converged(values[:999], 10.0)
    assert converged(np.full(1_000, 5), 0.0)


def test_a_mean_that_drifts_has_not_converged() -> None:
    assert not converged(np.arange(100_000), 0.1)
