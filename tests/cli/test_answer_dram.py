"""``kvbench answer dram`` beside replays of each size."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.cli.answers import answered
from tests.cli.conftest import Cli

MIB = 2**20


def token_rate(cli: Cli, sample: Path, blocks: int) -> float:
    rate: float = json.loads(cli("replay", sample, "--capacity", str(blocks), "--json").out)["summary"]["rates"][
        "token"
    ]
    return rate


def test_rates_bounds_and_ages_are_those_of_a_replay_at_each_size(cli: Cli, sample: Path) -> None:
    rows = answered(cli, "dram", sample, "--block-bytes", "2MiB")["tables"]["capacities"]
    for row in rows[::3]:
        blocks = row["capacity_blocks"]
        assert row["host_bytes"] // (2 * MIB) == blocks
        assert row["capacity_tokens"] == 64 * blocks
        replay = json.loads(cli("replay", sample, "--tier", f"dram,capacity={blocks},policy=lru", "--json").out)
        summary = replay["summary"]
        assert row["token_rate"] == pytest.approx(summary["rates"]["token"])
        assert row["belady_token_rate"] == summary["belady_rates"]["token"]
        assert row["infinite_share"] == pytest.approx(row["token_rate"] / summary["infinite_rates"]["token"])
        assert row["doubling_gain_rate"] == pytest.approx(token_rate(cli, sample, 2 * blocks) - row["token_rate"])
        mean_s = summary["tiers"][0]["retention"]["mean_s"]
        assert row["retention_ns"] == (None if mean_s is None else round(mean_s * 1e9))
    gained = [
        (row["token_rate"] - before["token_rate"]) / ((row["host_bytes"] - before["host_bytes"]) / 2**30)
        for before, row in itertools.pairwise(rows)
    ]
    assert gained == pytest.approx([row["gain_rate_per_gib"] for row in rows[1:]])


@pytest.mark.parametrize("worth", ["0.5%", "1%", "5%"])
def test_the_size_to_buy_is_the_first_from_which_on_doubling_is_not_worth_it(
    cli: Cli, sample: Path, worth: str
) -> None:
    sizes = [2 * 2**power * MIB for power in range(14)]
    given = ",".join(f"{size // MIB}MiB" for size in sizes)
    found = answered(cli, "dram", sample, "--block-bytes", "2MiB", "--capacity", given, "--worth", worth)
    rows = found["tables"]["capacities"]
    assert [row["host_bytes"] for row in rows] == sizes
    rates = [row["token_rate"] for row in rows]
    least = float(worth.rstrip("%")) / 100
    late = [at for at in range(len(sizes) - 1) if rates[at + 1] - rates[at] >= least]
    best = late[-1] + 1
    assert (
        f"({rows[best]['capacity_tokens']:,} tokens): {100 * rates[best]:.2f} % of input tokens hit"
        in (found["advice"][0])
    )
    assert f"doubling adds {100 * (rates[best + 1] - rates[best]):.2f} points" in found["advice"][0]


def test_a_plateau_before_a_step_is_not_the_end(cli: Cli, tmp_path: Path) -> None:
    """One hot prompt, and a cycle of 64 cold ones: between the two, doubling gains nothing for a while."""
    lines = []
    for at in range(640):
        for ids in ([1], [100 + at % 64]):
            row = {"timestamp": at, "input_length": 512, "output_length": 1, "hash_ids": ids}
            lines.append(json.dumps(row))
    (tmp_path / "step.jsonl").write_text("\n".join(lines))
    assert cli("trace", "import", "step.jsonl").code == 0
    found = answered(cli, "dram", "step.arrow", "--capacity", "2,4,8,16,32,64,128")
    rates = [row["token_rate"] for row in found["tables"]["capacities"]]
    assert rates[0] == rates[4] == pytest.approx(0.5, abs=0.01)
    assert found["advice"][0].startswith("Keep 128 blocks (65,536 tokens): ")
    assert found["advice"][1] == "In GiB: say how large KV is with --model MODEL (and --tp), or with --block-bytes."


def test_nothing_is_to_be_bought_for_a_trace_without_reuse(cli: Cli, tmp_path: Path) -> None:
    rows = [{"timestamp": at, "input_length": 512, "output_length": 1, "hash_ids": [at]} for at in range(9)]
    (tmp_path / "none.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert cli("trace", "import", "none.jsonl").code == 0
    found = answered(cli, "dram", "none.arrow", "--block-bytes", "2MiB")
    assert found["advice"] == [
        "Buy none for this: no input tokens would hit, however large the cache (kvbench answer reuse says why)."
    ]
    layout = json.loads(cli("answer", "layout", "none.arrow", "--model", "Llama-3.1-8B", "--json").out)
    assert layout["advice"] == [
        "None is better than another: nothing of this trace hits in 1TiB (kvbench answer reuse says why)."
    ]


def test_E16_a_size_is_told_for_each_rank_host_and_the_cluster(cli: Cli, sample: Path) -> None:
    shape = ("--model", "Llama-3.1-8B", "--tp", "4", "--workers", "6", "--workers-per-host", "2")
    found = answered(cli, "dram", sample, *shape, "--capacity", "1GiB,4GiB")
    for row in found["tables"]["capacities"]:
        assert row["rank_bytes"] * 4 * 2 == row["host_bytes"]
        assert row["cluster_bytes"] == 3 * row["host_bytes"]
        assert row["capacity_blocks"] == 3 * (row["host_bytes"] // (131_072 * 64))
    assert " a host, " in found["advice"][0]
    assert "on 3 hosts" in found["advice"][0]


def test_F03_the_same_bytes_hold_the_same_tokens_at_every_tp(cli: Cli, sample: Path) -> None:
    tables = [
        answered(cli, "dram", sample, "--model", "Llama-3.1-8B", "--tp", tp, "--capacity", "1GiB,4GiB")["tables"][
            "capacities"
        ]
        for tp in ("1", "2", "8")
    ]
    without_rank = [[{**row, "rank_bytes": None} for row in rows] for rows in tables]
    assert without_rank[0] == without_rank[1] == without_rank[2]
    assert [rows[0]["rank_bytes"] for rows in tables] == [2**30, 2**29, 2**27]


def test_J02_a_log_of_lookups_becomes_a_picture_and_a_table_of_hits_over_gigabytes(
    cli: Cli, shared: Path, tmp_path: Path
) -> None:
    pytest.importorskip("altair")
    log = shared / "golden" / "sample_lookup_hashes.jsonl"
    assert cli("trace", "import", log, "-o", "t.arrow").code == 0
    assert cli("answer", "dram", "t.arrow", "--block-bytes", "32MiB", "-o", "dram", "--png").code == 0
    lines = (tmp_path / "dram" / "capacities.csv").read_text().splitlines()
    assert lines[0].startswith(
        '"host_bytes","rank_bytes","cluster_bytes","capacity_blocks","capacity_tokens","token_rate"'
    )
    sizes = [int(line.split(",")[0]) for line in lines[1:]]
    assert len(sizes) > 5
    assert all(later <= 2 * size for size, later in itertools.pairwise(sizes))
    assert (tmp_path / "dram" / "hits-by-size.png").read_bytes().startswith(b"\x89PNG")


def test_sizes_may_be_tokens_and_are_in_the_manifest(cli: Cli, sample: Path) -> None:
    in_tokens, in_blocks = (
        answered(cli, "dram", sample, "--capacity", size) for size in ("6400tok,9600tok", "100,150")
    )
    assert in_tokens["tables"] == in_blocks["tables"]
    assert [each["config"]["capacity"] for each in (in_tokens, in_blocks)] == ["6400tok,9600tok", "100,150"]
    assert in_tokens["advice"][1] == "That is the largest size given, and doubling it is worth it: try larger ones."
    assert not any("try larger ones" in line for line in answered(cli, "dram", sample)["advice"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--capacity", "64GiB"], "is in bytes; say with --block-bytes or --model how large a block is"),
        (["--capacity", "10%"], "--capacity = 10%: give sizes to buy, as in 64GiB,128GiB, blocks or tokens"),
        (["--workers-per-host", "4"], "--workers-per-host has no effect with one worker; give --workers"),
        (["--workers", "0"], "--workers = 0 must be at least 1"),
        (["--worth", "2"], "--worth = 2 is not a share; write for example 1% or 0.01"),
        (["--tp", "8"], "--tp has no effect without --model"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(cli: Cli, sample: Path, arguments: list[str], message: str) -> None:
    run = cli("answer", "dram", sample, *arguments)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
