"""What routers know, on the command line."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cli

LATE = [
    *("--workers", "3", "--capacity", "200", "--routers", "2", "--index", "predictive,ttl=5s"),
    *("--event-channel", "coalesce=2s,delay=10,loss=0.05", "--load", "window=20,period=1s,sync=3"),
]


def test_the_table_says_what_routing_cost_and_why(cli: Cli, sample: Path) -> None:
    lines = cli("replay", sample, *LATE).out.splitlines()
    counts = {line.split("  ")[0]: line for line in lines}
    for row in ("best", "predicted", "delivered", "routed away", "stale", "phantom blocks", "lost messages", "gaps"):
        assert row in counts, row
    plain = cli("replay", sample, "--workers", "3", "--capacity", "200").out
    assert "routed away" in plain
    assert "phantom" not in plain


def test_summary_and_requests_agree(cli: Cli, sample: Path, tmp_path: Path) -> None:
    document = json.loads(cli("replay", sample, *LATE, "-o", "requests.parquet", "--json").out)
    routing = document["summary"]["routing"]
    rows = pq.read_table(tmp_path / "requests.parquet")
    best, predicted, hit = (rows[f"{name}_tokens"].to_numpy() for name in ("best", "predicted", "hit"))
    assert routing["routers"] == 2
    assert routing["routed_away_tokens"] == (best - hit).clip(0).sum()
    assert routing["stale_tokens"] == (predicted - hit).clip(0).sum()
    assert routing["index"]["lost_messages"] > 0


def test_printed_configuration_can_be_run_again(cli: Cli, sample: Path, tmp_path: Path) -> None:
    printed = cli("replay", sample, *LATE, "--print-config").out
    settings = tomllib.loads(printed)
    assert settings["index"] == {"mode": "predictive", "ttl": "5s", "copies": "set"}
    assert (settings["routers"], settings["load"]["sync"]) == (2, "3")
    (tmp_path / "run.toml").write_text(printed)
    first, again = (
        json.loads(cli("replay", *how, "--json").out) for how in ((sample, *LATE), ("--config", "run.toml"))
    )
    assert first["summary"] == again["summary"]
    assert first["config"] == again["config"]


def test_one_worker_has_no_routing(cli: Cli, sample: Path) -> None:
    assert "routed away" not in cli("replay", sample, "--capacity", "200").out


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--router", "aibrix-prefix", "--event-channel", "delay=3"], "--router aibrix-prefix, whose index"),
        (["--router", "consistent-hash,load_factor=0.5"], "load_factor = '0.5' is below 1"),
        (["--router", "max-prefix,ties=first,ties=random"], "ties is given twice"),
    ],
)
def test_a_setting_that_means_nothing_for_a_router_is_one_clear_error(
    cli: Cli, sample: Path, options: list[str], part: str
) -> None:
    done = cli("replay", sample, "--workers", "4", "--capacity", "200", *options)
    assert (done.code, done.out) == (2, "")
    assert part in done.err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--block-tokens", "32"], "--block-tokens from 64 to 67 would fit"),
        (["--router", "max-prefix,block_tokens=32"], "unknown parameter 'block_tokens'"),
        (["--index", "approximate,block_tokens=32"], "unknown"),
        (["--config", "run.toml"], "unknown"),
    ],
)
def test_G13_a_router_has_the_blocks_of_the_engines_and_another_size_is_an_error(
    cli: Cli, sample: Path, tmp_path: Path, options: list[str], part: str
) -> None:
    (tmp_path / "run.toml").write_text('index = {mode = "approximate", block_tokens = 32}\n')
    done = cli("replay", sample, "--workers", "2", "--capacity", "200", *options)
    assert (done.code, done.out) == (2, "")
    assert part in done.err
    assert "block_" in done.err
