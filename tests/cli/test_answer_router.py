"""``kvbench answer router`` beside replays of each router, and of each trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import answered, refused, replayed, write_prompts
from tests.cli.conftest import Cli

SHAPE = ("--workers", "4", "--capacity", "473")
ROUTERS = ("--router", "round-robin", "--router", "max-prefix", "--router", "pstack-loadaware,beta=0.5")
BEST = ("--router", "pstack-loadaware,beta=0.5")
TIMED = ("--model", "Llama-3.1-70B", "--tp", "8", "--compute", "roofline", "--arrivals", "trace,rate=8")
BRIEF = ("--delay", "10s", "--loss", "0.1", "--views", "4")


def beaten(row: dict[str, Any], rows: list[dict[str, Any]], goals: dict[str, int]) -> bool:
    """Whether another row is as good in all figures and better in one."""
    return any(
        all(sign * other[name] >= sign * row[name] for name, sign in goals.items())
        and any(other[name] != row[name] for name in goals)
        for other in rows
    )


def test_hits_and_load_are_those_of_the_matrix_and_the_most_hits_at_even_load_win(cli: Cli, sample: Path) -> None:
    found = answered(cli, "router", sample, *SHAPE, *ROUTERS, *BRIEF)
    cells = json.loads(cli("replay", sample, *SHAPE, *ROUTERS, "--json").out)["cells"]
    rows = found["tables"]["routers"]
    for row, cell in zip(rows, cells, strict=True):
        assert row["token_rate"] == cell["rates"]["token"]
        for name in ("max_over_mean_requests", "max_over_mean_computed_tokens", "routed_away_tokens", "stale_tokens"):
            assert row[name] == cell[name], name
        assert row["front"] != beaten(row, rows, {"token_rate": 1, "max_over_mean_computed_tokens": -1})
    assert found["advice"][0].startswith("pstack-loadaware,beta=0.5: 84.09 % of the input tokens hit, of 86.24 %")


def test_trials_are_replays_of_the_best_router_under_one_condition_each(cli: Cli, sample: Path, tmp_path: Path) -> None:
    rows = answered(cli, "router", sample, *SHAPE, *ROUTERS, *BRIEF)["tables"]["trials"]
    plan = '[[fault]]\nkind = "restart"\ntier = "gpu"\nworker = 0\nfrom_request = 976\n'
    (tmp_path / "faults.toml").write_text(plan)
    conditions: dict[str, tuple[str, ...]] = {
        "as it is": SHAPE,
        "events 10s late": (*SHAPE, "--event-channel", "delay=10s"),
        "10 % of the messages lost": (*SHAPE, "--event-channel", "loss=0.1"),
        "4 routers": (*SHAPE, "--routers", "4"),
        "worker 0 restarts half way": ("--workers", "4", "--tier", "gpu,capacity=473", "--faults", "faults.toml"),
    }
    assert [row["trial"] for row in rows] == list(conditions)
    for row, arguments in zip(rows, conditions.values(), strict=True):
        summary = replayed(cli, sample, *arguments, *BEST)
        assert row["token_rate"] == summary["rates"]["token"], row["trial"]
        for name in ("best", "predicted", "delivered", "routed_away", "stale", "unforeseen"):
            assert row[f"{name}_tokens"] == summary["routing"][f"{name}_tokens"], name


def test_G10_nothing_is_predicted_in_vain_until_messages_are_lost(cli: Cli, sample: Path) -> None:
    shape = (*SHAPE, *BEST, "--delay", "", "--views", "", "--loss", "0,0.1")
    _, none, some, _ = answered(cli, "router", sample, *shape)["tables"]["trials"]
    assert none["stale_tokens"] == none["unforeseen_tokens"] == 0
    assert some["stale_tokens"] > 0


def test_G03_one_hot_prefix_pins_one_worker_and_a_load_aware_router_trades(cli: Cli, tmp_path: Path) -> None:
    """A prompt, and a second later a hundred that begin like it, faster than one worker serves them."""
    prompts = [[1, 2, 3, 1000 + at] for at in range(101)]
    trace = write_prompts(cli, tmp_path, prompts, block_tokens=512, at_ms=lambda row: 1000 + 20 * row if row else 0)
    routers = ("--router", "max-prefix", "--router", "pstack-loadaware")
    timed = ("--compute", "fixed,prefill_ms_per_token=0.1,decode_ms=1", "--slo", "ttft=1s")
    found = answered(cli, "router", trace, "--workers", "4", "--capacity", "500", *routers, *timed, *BRIEF)
    pinned, aware = found["tables"]["routers"]
    assert (pinned["max_over_mean_requests"], aware["max_over_mean_requests"]) == (4.0, pytest.approx(1, abs=0.3))
    assert pinned["token_rate"] >= aware["token_rate"]
    assert pinned["ttft_p99_ns"] > 2 * aware["ttft_p99_ns"]
    assert found["advice"][0].startswith("pstack-loadaware: ")
    assert "restarts" not in str(found["tables"]["trials"])
    in_order = answered(cli, "router", trace, "--workers", "4", "--capacity", "500", *routers, *BRIEF)
    assert in_order["advice"][0].startswith("pstack-loadaware: ")


def test_on_the_clock_the_lowest_tail_wins_and_the_front_counts_it(cli: Cli, sample: Path) -> None:
    found = answered(cli, "router", sample, *SHAPE, *TIMED, *ROUTERS, *BRIEF)
    rows = found["tables"]["routers"]
    goals = {"token_rate": 1, "max_over_mean_computed_tokens": -1, "ttft_p99_ns": -1}
    for row in rows:
        timed = replayed(cli, sample, *SHAPE, *TIMED, "--router", row["router"])["timed"]
        assert [row["ttft_p50_ns"], row["ttft_p99_ns"]] == [timed["ttft_ns"]["p50"], timed["ttft_ns"]["p99"]]
        assert row["front"] != beaten(row, rows, goals)
    best = min(rows, key=lambda row: row["ttft_p99_ns"])
    assert found["advice"][0].startswith(f"{best['router']}: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SHAPE, "--block-tokens", "32"), "block_ids = "),  # G13: a router's blocks are those of the engine
        (("--capacity", "9"), "one worker leaves a router no choice; give --workers"),
        ((*SHAPE, "--loss", "2"), "loss"),
        ((*SHAPE, "--views", "x"), "--views x: "),
        ((*SHAPE, "--delay", "10 parsecs"), "delay"),
    ],
)
def test_what_is_no_choice_is_refused(cli: Cli, sample: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cli, "router", sample, *arguments)
