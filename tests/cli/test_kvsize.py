"""``kvbench kv-size``, end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, Run


def document(run: Run) -> dict[str, Any]:
    assert (run.code, run.err) == (0, "")
    parsed: dict[str, Any] = json.loads(run.out)
    return parsed


def test_f08_without_a_model_all_known_ones_are_listed(cli: Cli) -> None:
    run = cli("kv-size")
    assert (run.code, run.err) == (0, "")
    assert any(line.split()[0] == "Llama-3.1-8B" and "131,072" in line for line in run.out.splitlines()[1:28])
    listed = document(cli("kv-size", "--json"))["models"]
    assert len(listed) == len({model["name"] for model in listed}) >= 20


def test_f08_a_preset_prints_its_sizes_and_its_source(cli: Cli) -> None:
    run = cli("kv-size", "Llama-3.1-8B", "--tp", "8", "--block-tokens", "64")
    assert run.code == 0
    for part in ("8 KV heads × 128 · bf16 · TP 8", "16,384", "131,072", "8,388,608", "huggingface.co/meta-llama"):
        assert part in run.out, part


def test_f08_a_file_of_ones_own_overrides_a_preset(cli: Cli, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[models."Llama-3.1-8B"]\nlayers = 1\nkv_heads = 1\nhead_dim = 1\ndtype = "bf16"\n')
    run = cli("kv-size", "Llama-3.1-8B", "--models", own, "--json")
    assert document(run)["bytes_per_token"]["total"] == 4


def test_e16_a_capacity_states_its_scope_and_the_host_total(cli: Cli) -> None:
    arguments = ("kv-size", "Llama-3.1-70B", "--tp", "8", "--capacity", "50GB", "--scope", "rank")
    text = cli(*arguments).out
    for part in ("50GB per rank · 1 worker of 8 ranks a host", "400,000,000,000", "host total"):
        assert part in text, part
    (held,) = document(cli(*arguments, "--json"))["capacities"]
    assert (held["scope"], held["host"]["bytes"]) == ("rank", 400_000_000_000)
    assert held["host"]["tokens"] == held["host"]["blocks"] * 16 == 50 * 10**9 // (40_960 * 16) * 16


def test_f03_a_capacity_per_host_holds_the_same_tokens_at_every_tp(cli: Cli) -> None:
    held = {
        document(cli("kv-size", "Llama-3.1-8B", "--tp", tp, "--capacity", "64GiB,1TiB", "--json"))["capacities"][1][
            "host"
        ]["tokens"]
        for tp in ("1", "2", "8")
    }
    assert held == {2**40 // 131_072}


def test_f07_a_capacity_too_small_says_how_much_is_needed(cli: Cli) -> None:
    run = cli("kv-size", "Llama-3.1-8B", "--capacity", "1MB")
    assert run.code == 2
    assert run.err.startswith("error: --capacity 1,000,000 bytes per host holds no block")
    assert "give at least 2097152B" in run.err


def test_f04_scales_are_said_to_be_left_out_or_counted(cli: Cli) -> None:
    assert "scales of fp8 are not counted" in cli("kv-size", "Llama-3.1-8B", "--dtype", "fp8").out
    with_scales = cli("kv-size", "Llama-3.1-8B", "--dtype", "fp8", "--scale-bytes", "4").out
    assert "fp8 with 4 bytes of scales a vector" in with_scales
    assert "not counted" not in with_scales


def test_mla_shows_bytes_per_rank_in_total_and_stored_once(cli: Cli) -> None:
    sizes = document(cli("kv-size", "DeepSeek-V3", "--tp", "8", "--json"))["bytes_per_token"]
    assert sizes == {"rank": 70_272, "total": 562_176, "stored_once": 70_272}
    once = cli("kv-size", "DeepSeek-V3", "--tp", "8", "--save-only-first-rank")
    assert "stored once (--save-only-first-rank)" in once.out


def test_a_request_is_sized_and_counted(cli: Cli) -> None:
    arguments = ("--tokens", "10k", "--capacity", "64GiB", "--json")
    result = document(cli("kv-size", "granite-4.0-h-small", *arguments))
    assert result["request"]["total"] == result["fixed_bytes"]["total"] + 10_000 * 16_384
    assert result["capacities"][0]["host"]["requests"] == 64 * 2**30 // result["request"]["total"]


def test_window_layers_show_what_a_token_takes_beyond_the_window(cli: Cli) -> None:
    run = cli("kv-size", "gpt-oss-20b", "--tokens", "1000")
    assert "in the first 128 tokens" in run.out
    assert "a token after that" in run.out


def test_heads_that_replicate_are_said(cli: Cli) -> None:
    assert "heads replicate" in cli("kv-size", "Llama-3.1-8B", "--tp", "16").out
    assert "do not divide" in cli("kv-size", "Llama-3.1-8B", "--tp", "3").out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["Lama-3.1-8B"], "did you mean 'Llama-3.1-8B'?"),
        (["Llama-3.1-8B", "--scope", "rank"], "--scope has no effect without --capacity"),
        (["Llama-3.1-8B", "--tp", "0"], "--tp = 0 must be at least 1"),
        (["Llama-3.1-8B", "--tokens", "0"], "--tokens = 0 must be at least 1"),
        (["Llama-3.1-8B", "--tokens", "5G"], "--tokens = 5000000000 must be at most"),
        (["Llama-3.1-8B", "--capacity", "64Gib"], "did you mean GiB?"),
        (["Llama-3.1-8B", "--save-only-first-rank"], "--save-only-first-rank has no effect with Llama-3.1-8B"),
        (["none/config.json"], "none/config.json: cannot be read"),
        (["--tp", "8"], "--tp has no effect without MODEL"),
    ],
)
def test_wrong_input_is_one_line_with_what_to_do(cli: Cli, arguments: list[str], part: str) -> None:
    run = cli("kv-size", *arguments)
    assert run.code == 2
    assert run.err.startswith("error: ")
    assert run.err.count("\n") == 1
    assert part in run.err


def test_help_ends_in_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from kvbench.cli import main\n"
        "try:\n"
        "    main(['kv-size', '--help'])\n"
        "except SystemExit as done:\n"
        "    assert done.code == 0, done.code\n"
        "heavy = ('numpy', 'pyarrow', 'rich', 'msgspec', 'kvbench.serving')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    env = {**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert "Examples:" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"


def test_op_61_the_weights_leave_blocks_of_a_gpu(cli: Cli) -> None:
    """granite-3.3-8b on 80 GiB, all of it in use: 26,534 blocks of 16 tokens."""
    whole = ("--gpu", "80GiB", "--utilization", "1")
    found = document(cli("kv-size", "granite-3.3-8b", *whole, "--json"))["capacities"]
    assert [held["rank"]["blocks"] for held in found] == [26_534]
    both = cli("kv-size", "granite-3.3-8b", "--capacity", "1TiB", "--gpu", "h100-sxm", "--tp", "2")
    assert "0.9 of h100-sxm less the weights per rank" in both.out
    assert "1TiB per host" in both.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--utilization", "0.5"), "--utilization has no effect without --gpu"),
        (("--gpu", "h100-sxm", "--utilization", "1.5"), "--utilization = 1.5 must be above 0 and at most 1"),
        (("--gpu", "16GiB"), "hold no weights of granite-3.3-8b, which are 15.2 GiB on each of 1 ranks"),
        (("--gpu", "h200"), "'h200' is not a number"),
    ],
)
def test_a_gpu_that_holds_nothing_is_an_error(cli: Cli, options: tuple[str, ...], message: str) -> None:
    run = cli("kv-size", "granite-3.3-8b", *options)
    assert run.code == 2
    assert message in run.err
