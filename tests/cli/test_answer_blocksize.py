"""``kvbench answer block-size`` beside prompts compared one with another, and beside replays."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.answers import answered, replayed, write_trace
from tests.cli.conftest import Cli


def every_second(rows: int) -> dict[str, Any]:
    return {"arrival_ns": pa.array([at * 10**9 for at in range(rows)], pa.int64())}


def prompts_of(seed: int) -> list[list[int]]:
    """Prompts that go on from one another at any token."""
    draw = random.Random(seed)
    prompts: list[list[int]] = []
    for _ in range(60):
        start = draw.choice(prompts)[: draw.randrange(1, 200)] if prompts and draw.random() < 0.8 else []
        prompts.append([*start, *(draw.randrange(50_000) for _ in range(draw.randrange(5, 150)))])
    return prompts


def shared_tokens(prompts: list[list[int]], at: int) -> int:
    """The longest prefix that a prompt has in common with one before it."""
    longest = 0
    for other in prompts[:at]:
        same = next((i for i, (a, b) in enumerate(zip(prompts[at], other, strict=False)) if a != b), None)
        longest = max(longest, min(len(prompts[at]), len(other)) if same is None else same)
    return longest


@pytest.mark.parametrize("seed", [1, 2])
def test_hits_and_losses_are_those_of_prompts_compared_one_with_another(cli: Cli, tmp_path: Path, seed: int) -> None:
    prompts = prompts_of(seed)
    trace = write_trace(tmp_path / "t.arrow", prompts, ids="token_ids", columns=every_second(len(prompts)))
    sizes = [1, 8, 24, 64]
    rows = answered(cli, "block-size", trace, "--block-sizes", ",".join(map(str, sizes)))["tables"]["sizes"]
    shared = [shared_tokens(prompts, at) for at in range(len(prompts))]
    assert [row["block_tokens"] for row in rows] == sizes
    for row in rows:
        size = row["block_tokens"]
        assert row["hit_tokens"] == sum(length // size * size for length in shared)
        assert row["lost_tokens"] == sum(shared) - row["hit_tokens"]
        assert row["token_rate"] == row["infinite_token_rate"] == row["hit_tokens"] / sum(map(len, prompts))
        assert row["short_prefix_requests"] == sum(0 < length < size for length in shared)
        distinct = {tuple(prompt[:end]) for prompt in prompts for end in range(size, len(prompt) + 1, size)}
        assert row["index_entries"] == row["events"] == len(distinct)
        assert row["events_per_s"] == pytest.approx(len(distinct) / (len(prompts) - 1))


def test_at_a_capacity_hits_entries_and_events_are_those_of_a_replay(cli: Cli, tmp_path: Path) -> None:
    prompts = prompts_of(3)
    trace = write_trace(tmp_path / "t.arrow", prompts, ids="token_ids", columns=every_second(len(prompts)))
    found = answered(cli, "block-size", trace, "--block-sizes", "8,16,64", "--capacity", "2ktok")
    for row in found["tables"]["sizes"]:
        size = str(row["block_tokens"])
        replayed = cli("replay", trace, "--block-tokens", size, "--capacity", str(2_000 // int(size)), "--json")
        summary = json.loads(replayed.out)["summary"]
        assert row["token_rate"] == summary["rates"]["token"]
        assert row["index_entries"] == summary["blocks"]["resident_at_end"]
        assert row["events"] == summary["blocks"]["stored"] + summary["blocks"]["evicted"]
        assert summary["blocks"]["evicted"] > 0


def test_blocks_of_ids_are_joined_by_multiples(cli: Cli, tmp_path: Path) -> None:
    """Ids of four tokens, and the same prompts with one id for each two and four of them."""
    draw = random.Random(5)
    rows: list[list[int]] = []
    for at in range(80):
        start = draw.choice(rows)[: draw.randrange(1, 20)] if rows else []
        rows.append([*start, *range(1_000 * (at + 1), 1_000 * (at + 1) + draw.randrange(1, 9))])
    trace = write_trace(tmp_path / "t.arrow", rows, block_tokens=4)
    tokens = {"input_tokens": pa.array([4 * len(row) for row in rows], pa.uint32())}
    found = answered(cli, "block-size", trace, "--block-sizes", "4,8,16", "--capacity", "400tok")
    for multiple, row in zip((1, 2, 4), found["tables"]["sizes"], strict=True):
        joined = [ids[multiple - 1 :: multiple] for ids in rows]
        facts = {"block_tokens": 4 * multiple, "tail_rule": "floor"}
        whole = write_trace(tmp_path / f"{multiple}.arrow", joined, columns=tokens, **facts)
        replayed = json.loads(cli("replay", whole, "--capacity", str(100 // multiple), "--json").out)["summary"]
        assert row["token_rate"] == replayed["rates"]["token"]
        assert row["infinite_token_rate"] == replayed["infinite_rates"]["token"]
    assert found["advice"][-1] == "The trace has ids of 4 tokens, so what smaller blocks would hit is not known."


def test_C06_fifty_tokens_in_common_are_50_48_and_0_in_pages_of_1_16_and_64(cli: Cli, tmp_path: Path) -> None:
    prompts = [[*range(50), *range(1_000 * at, 1_000 * at + 100)] for at in (1, 2)]
    trace = write_trace(tmp_path / "t.arrow", prompts, ids="token_ids")
    rows = answered(cli, "block-size", trace, "--block-sizes", "1,16,64")["tables"]["sizes"]
    assert [row["hit_tokens"] for row in rows] == [50, 48, 0]
    assert [row["lost_tokens"] for row in rows] == [0, 2, 50]


@pytest.mark.parametrize(("worth", "best"), [("0%", 1), ("1%", 16), ("100%", 64)])
def test_the_largest_blocks_that_lose_less_than_they_may_are_taken(
    cli: Cli, tmp_path: Path, worth: str, best: int
) -> None:
    prompts = [[*range(50), *range(1_000 * at, 1_000 * at + 250)] for at in range(1, 10)]
    trace = write_trace(tmp_path / "t.arrow", prompts, ids="token_ids")
    found = answered(cli, "block-size", trace, "--block-sizes", "1,16,64", "--worth", worth)
    assert found["advice"][0].startswith(f"Take blocks of {best} tokens: ")


def test_A03_the_block_size_given_is_in_the_manifest_and_must_fit_the_ids(cli: Cli, tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "t.arrow",
        [[1, 2, 3]] * 2,
        columns={"input_tokens": pa.array([33, 33], pa.uint32())},
        block_tokens=16,
    )
    found = answered(cli, "block-size", trace, "--block-tokens", "16", "--block-sizes", "16,32")
    assert found["trace"]["block_tokens"] == 16
    assert found["config"]["block_sizes"] == [16, 32]
    refused = cli("answer", "block-size", trace, "--block-tokens", "512")
    assert refused.code == 2
    assert "33 input tokens in blocks of 512" in refused.err


def test_a_block_has_the_bytes_that_are_given_though_a_token_has_a_fraction_of_one(cli: Cli, sample: Path) -> None:
    sizes = ("--block-sizes", "64,128", "--block-bytes", "1000010", "--capacity", "100001000B")
    rows = answered(cli, "block-size", sample, *sizes)["tables"]["sizes"]
    assert [row["block_bytes"] for row in rows] == [1_000_010, 2_000_020]
    assert rows[0]["token_rate"] == replayed(cli, sample, "--capacity", "100")["rates"]["token"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--block-sizes", "64"], "--block-sizes: give two sizes at least to choose from"),
        (["--block-sizes", "64,100"], "chat.arrow stand for 64 tokens, and tell of multiples only"),
        (["--capacity", "64GiB"], "--capacity = 64GiB is in bytes; say with --model or --block-bytes how large KV is"),
        (["--capacity", "100tok"], "--capacity = 100 tokens is less than one block of 128"),
        (["--capacity", "10k"], "--capacity = 10k: blocks differ in size here, so give tokens or bytes"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(cli: Cli, sample: Path, arguments: list[str], message: str) -> None:
    run = cli("answer", "block-size", sample, *arguments)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
