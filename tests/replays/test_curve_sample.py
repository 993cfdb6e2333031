"""Sampled curves: deterministic by seed, unbiased, and within their error bars."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.plugins import load_registry
from kvbench.results.rates import RATES

REGISTRY = load_registry(autoload=False)
SEEDS = 100


def curve(trace, capacities, rate, seed=0, **choice):
    sample = kvbench.SampleChoice(rate, **choice) if rate < 1 else None
    return kvbench.curve(trace, capacities=",".join(map(str, capacities)), sample=sample, seed=seed, registry=REGISTRY)


def covered(trace, capacities, rate, **choice):
    """The share of seeds whose error bars hold the exact rate: an array capacities × rates."""
    exact = curve(trace, capacities, 1).curve
    held = np.zeros((len(capacities), len(RATES)))
    for seed in range(SEEDS):
        for at, row in enumerate(curve(trace, capacities, rate, seed, **choice).curve):
            for rank, name in enumerate(RATES):
                held[at, rank] += row["rates_low"][name] <= exact[at]["rates"][name] <= row["rates_high"][name]
    return held / SEEDS


@pytest.fixture
def sessions(make_trace):
    """Forty sessions of five turns under one system prompt, in turn."""
    rows, names = [], []
    for turn in range(1, 6):
        for session in range(40):
            rows.append([0, *(1_000 * (session + 1) + at for at in range(2 * turn))])
            names.append(f"s{session}")
    return make_trace(rows, session_id=pa.array(names))


def test_a_sample_depends_on_its_seed_alone(mooncake):
    first = curve(mooncake("synthetic"), [10_000], 0.2, seed=3)
    again = curve(pa.ipc.open_file(mooncake("synthetic")).read_all(), [10_000], 0.2, seed=3)
    other = curve(mooncake("synthetic"), [10_000], 0.2, seed=4)
    assert (first.manifest, first.summary, first.curve) == (again.manifest, again.summary, again.curve)
    assert other.summary["sample"]["units"] != first.summary["sample"]["units"]


def test_nearly_everything_gives_nearly_the_exact_curve(mooncake):
    capacities = [300, 3_000, 30_000]
    exact = curve(mooncake("synthetic"), capacities, 1)
    nearly = curve(mooncake("synthetic"), capacities, 0.9999)
    for wanted, row in zip(exact.curve, nearly.curve, strict=True):
        assert row["rates"]["block"] == pytest.approx(wanted["rates"]["block"], abs=0.01)
        assert row["rates_low"]["block"] < row["rates"]["block"] < row["rates_high"]["block"]


def test_sessions_are_kept_whole_and_shared_blocks_followed(sessions):
    exact = curve(sessions, [50, 400], 1)
    result = curve(sessions, [50, 400], 0.5, by="session")
    sample = result.summary["sample"]
    assert sample["requests"] == 5 * sample["units"]
    assert sample["all_units"] == 40
    for wanted, row in zip(exact.curve, result.curve, strict=True):
        assert row["rates"]["request_any"] == pytest.approx(wanted["rates"]["request_any"], abs=0.01)
        assert row["rates_low"]["block"] <= wanted["rates"]["block"] <= row["rates_high"]["block"]


def test_one_root_for_all_is_noticed_and_depth_helps(mooncake):
    """Every request of this trace starts with block 0."""
    trace = mooncake("conversation")
    with pytest.raises(ConfigError, match="none of 1 trees"):
        curve(trace, [1_000], 0.01, seed=1)
    result = curve(trace, [1_000, 100_000], 0.1, depth=1)
    assert result.summary["sample"]["largest_unit_share"] < 0.01
    exact = curve(trace, [1_000, 100_000], 1)
    for wanted, row in zip(exact.curve, result.curve, strict=True):
        assert row["rates_low"]["block"] <= wanted["rates"]["block"] <= row["rates_high"]["block"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"rate": 1.5}, "below 1"),
        ({"rate": 0.0}, "above 0"),
        ({"rate": 0.5, "depth": -1}, "negative"),
        ({"rate": 0.5, "by": "session"}, "session_id"),
        ({"rate": 0.5, "by": "session", "depth": 1}, "no effect"),
    ],
)
def test_each_bad_sample_is_named(make_trace, choice, message):
    with pytest.raises(ConfigError, match=message):
        kvbench.curve(make_trace([[1]]), sample=kvbench.SampleChoice(**choice), registry=REGISTRY)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "depth"), [("conversation", 1), ("synthetic", 0)])
def test_one_percent_is_within_its_error_bars(mooncake, name, depth):
    shares = covered(
        pa.ipc.open_file(mooncake(name)).read_all(), [100, 1_000, 10_000, 30_000, 100_000], 0.01, depth=depth
    )
    assert shares.min() >= 0.95


@pytest.mark.slow
def test_one_percent_of_weka_is_within_its_error_bars(weka):
    assert covered(weka, [1_000, 100_000, 1_000_000], 0.01).min() >= 0.95
