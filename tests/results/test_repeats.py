"""Repeated runs: means and confidence intervals of every figure (user report J01)."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

import kvbench
from kvbench.cli.seedtables import print_repeats
from kvbench.config import RunConfig
from kvbench.errors import ArgumentError
from kvbench.results.repeats import Figure, figures_of, repeat
from kvbench.results.result import ReplayResult

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"


def run(seed: int) -> ReplayResult:
    return kvbench.replay(CHAT, capacity=100, policy="random", seed=seed, workers=2, router="random")


def test_j01_five_seeds_give_the_mean_and_its_interval_of_each_figure() -> None:
    result = repeat(run, range(5))
    rates = [run(seed).rates["token"] for seed in range(5)]
    known = [rate for rate in rates if rate is not None]
    found = result.figures["rates.token"]
    assert (found.n, found.mean) == (5, pytest.approx(statistics.mean(known)))
    assert found.sd == pytest.approx(statistics.stdev(known))
    assert found.half == pytest.approx(2.776445 * statistics.stdev(known) / math.sqrt(5))
    assert result.seeds == [0, 1, 2, 3, 4]
    assert [summary["rates"]["token"] for summary in result.summaries] == rates
    assert repeat(run, range(5)).figures == result.figures, "the same seeds give the same"


def test_what_no_seed_changes_has_an_interval_of_no_width() -> None:
    asked = repeat(run, [3, 4]).figures["blocks.asked"]
    assert (asked.sd, asked.low, asked.high) == (0, asked.mean, asked.mean)


def test_figures_are_named_by_their_path_and_null_ones_do_not_count() -> None:
    first: dict[str, Any] = {"a": {"b": 1, "c": None, "text": "x", "yes": True}, "tiers": [{"tier": "cpu", "hits": 2}]}
    second: dict[str, Any] = {"a": {"b": 3, "c": 5.0}, "tiers": [{"tier": "cpu", "hits": 2}]}
    figures = figures_of([first, second])
    assert list(figures) == ["a.b", "tiers.cpu.hits", "a.c"]
    assert figures["a.c"] == Figure(1, 5.0, None, None, None)
    assert figures["a.b"].mean == 2
    links = figures_of([{"links": [{"name": "nic", "store": at, "moved": at} for at in range(2)], "waits": [7]}])
    assert [path for path in links if "store" not in path] == ["links.nic/0.moved", "links.nic/1.moved", "waits.0"]


def test_without_a_seed_there_is_nothing_to_repeat() -> None:
    with pytest.raises(ArgumentError, match="no seed"):
        repeat(run, [])


def test_the_table_has_the_figures_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    result = repeat(run, [1, 2])
    print_repeats(result, RunConfig(trace="chat.arrow"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "chat.arrow · 2 runs, seeds 1 to 2"
    assert [line.split("  ")[0] for line in lines[3:6]] == ["token rate", "block rate", "max/mean requests of a worker"]
    assert "TTFT" not in "".join(lines), "an order replay has none"
    assert result.to_dict()["figures"]["rates.token"]["n"] == 2
