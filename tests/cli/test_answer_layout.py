"""``kvbench answer layout`` beside ``kvbench kv-size`` and replays of the capacities that it gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvbench.trace.reader import open_trace
from tests.cli.answers import answered
from tests.cli.conftest import Cli

SIZED = [
    ("Llama-3.1-8B", "bf16", "1", False),
    ("Llama-3.1-8B", "fp8", "8", False),
    ("DeepSeek-V3", "bf16", "8", False),
    ("DeepSeek-V3", "bf16", "8", True),
    ("gpt-oss-120b", "bf16", "8", False),
]


def rate_at(cli: Cli, trace: Path, blocks: int) -> float:
    rate: float = json.loads(cli("replay", trace, "--capacity", str(blocks), "--json").out)["summary"]["rates"]["token"]
    return rate


def test_F01_F04_F05_F08_sizes_are_those_of_kv_size_and_hits_those_of_a_replay_at_them(cli: Cli, sample: Path) -> None:
    models = dict.fromkeys(model for model, *_ in SIZED)
    named = [word for model in models for word in ("--model", model)]
    found = answered(cli, "layout", sample, *named, "--capacity", "512MiB,4GiB", "--context-tokens", "2000")
    layouts = {row["layout"]: row for row in found["tables"]["layouts"]}
    held = {(row["layout"], row["capacity"]): row for row in found["tables"]["capacities"]}
    assert layouts["Llama-3.1-8B bf16 TP 1"]["token_bytes"] == 131_072
    assert layouts["Llama-3.1-8B fp8 TP 1"]["token_bytes"] == 65_536
    for model, dtype, tp, once in SIZED:
        options = [
            "--tp",
            tp,
            "--dtype",
            dtype,
            "--tokens",
            "2000",
            "--block-tokens",
            "64",
            "--capacity",
            "512MiB,4GiB",
        ]
        sized = json.loads(cli("kv-size", model, *options, *(["--save-only-first-rank"] if once else []), "--json").out)
        name = f"{model} {dtype} TP {tp}{' stored once' if once else ''}"
        row = layouts[name]
        assert row["rank_token_bytes"] == sized["bytes_per_token"]["rank"]
        assert row["token_bytes"] == sized["bytes_per_token"]["total"]
        assert row["fixed_request_bytes"] == sized["fixed_bytes"]["total"]
        assert row["full_context_bytes"] == sized["request"]["total"]
        for capacity in sized["capacities"]:
            room = held[name, capacity["given"]]
            assert room["capacity_tokens"] == capacity["host"]["tokens"]
            assert room["full_context_requests"] == capacity["host"]["requests"]
            assert room["rank_bytes"] == capacity["rank"]["bytes"]
            assert room["token_rate"] == pytest.approx(rate_at(cli, sample, capacity["host"]["blocks"]))


def test_the_advice_names_the_best_and_the_worst_and_what_they_differ_by(cli: Cli, sample: Path) -> None:
    found = answered(
        cli, "layout", sample, "--model", "DeepSeek-V3", "--tp", "8", "--kv-dtype", "bf16", "--capacity", "1GiB"
    )
    each, once = (row["token_rate"] for row in found["tables"]["capacities"])
    assert each < once
    assert found["advice"][0].startswith(
        f"In 1GiB a host DeepSeek-V3 bf16 TP 8 stored once hits most: {100 * once:.2f} % of the input tokens"
    )
    assert f"DeepSeek-V3 bf16 TP 8 hits {100 * each:.2f} %, {100 * (once - each):.2f} points less" in found["advice"][0]
    assert found["advice"][1] == (
        f"Storing the latent once, not on each rank, adds {100 * (once - each):.2f} points to DeepSeek-V3 bf16 at TP 8."
    )


def test_widths_that_hold_as_much_are_named_together(cli: Cli, sample: Path) -> None:
    widths = ("--tp", "4", "--tp", "8")
    found = answered(cli, "layout", sample, "--model", "Llama-3.1-70B", *widths, "--capacity", "256MiB")
    assert found["advice"][0].startswith("In 256MiB a host Llama-3.1-70B fp8 TP 4 and 8 hits most: ")
    assert " Llama-3.1-70B bf16 TP 4 and 8 hits " in found["advice"][0]


def test_a_full_context_is_the_longest_prompt_with_its_answer(cli: Cli, sample: Path) -> None:
    rows = [row for batch in open_trace(sample).batches() for row in batch.to_pylist()]
    longest = max(row["input_tokens"] + (row["output_tokens"] or 0) for row in rows)
    found = answered(cli, "layout", sample, "--model", "Llama-3.1-8B")
    assert found["config"]["context_tokens"] == longest
    assert any(line.startswith(f"A request of {longest:,} tokens takes ") for line in found["advice"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--model'"),
        (["--model", "Lama-3.1-8B"], "unknown model 'Lama-3.1-8B'"),
        (["--model", "Llama-3.1-8B", "--capacity", "1MiB"], "8,388,608"),  # F07: what is needed at least
        (["--model", "Llama-3.1-8B", "--capacity", "10k"], "'10k' is not a size in bytes"),
        (["--model", "Llama-3.1-8B", "--context-tokens", "0"], "--context-tokens = 0 must be at least 1"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(cli: Cli, sample: Path, arguments: list[str], message: str) -> None:
    run = cli("answer", "layout", sample, *arguments)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
