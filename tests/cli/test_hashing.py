"""Hash algorithms and token databases from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Cli
from tests.prompts import token_trace


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Three documents in two orders, set apart by tokens 7 8, at 2 tokens a block."""
    a, b, c, apart = [10, 11, 12, 13], [20, 21], [30, 31, 32], [7, 8]
    rows = [a + apart + b + apart + c, c + apart + a + apart + b]
    path = tmp_path / "documents.parquet"
    pq.write_table(token_trace(rows), path)
    return path


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("chained,algorithm=blake", "unknown hash algorithm 'blake'; did you mean 'blake3'?"),
        ("chained,seed=1", "hash algorithm blake3: unknown parameter 'seed'; it takes none"),
        ("chained,algorithm=vllm-sha256,sed=1", "unknown parameter 'sed'; it takes lookahead, none_hash, seed, vllm"),
        ("chained,algorithm=vllm-xxhash", "hash algorithm vllm-xxhash: vLLM 0.33 with xxhash draws a random root"),
        ("chained,separator=7", "hash algorithm blake3: unknown parameter 'separator'"),
        ("ids,algorithm=sha256", "token database ids: unknown parameter 'algorithm'; it takes none"),
        ("segment", "token database segment: parameter separator (token ids, set apart by spaces) must be given"),
        ("segment,separator=", "separator is empty; it must be at least one token"),
        ("segment,separator=7;8", "separator = '7;8' is not token ids set apart by spaces, such as '7 8'"),
        ("segment,separator=-7", "separator: token 0 has the id -7"),
    ],
)
def test_a_wrong_algorithm_or_parameter_is_one_line_and_exit_code_2(
    cli: Cli, documents: Path, tokens: str, message: str
) -> None:
    done = cli("replay", documents, "--tokens", tokens)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert message in done.err


def test_partial_blocks_of_segments_cannot_be_kept(cli: Cli, documents: Path) -> None:
    done = cli("replay", documents, "--tokens", "segment,separator=7 8", "--tails", "keep")
    assert done.code == 2
    assert "--tails keep has no effect on token database segment: it keys full blocks only" in done.err


def test_documents_hit_in_any_order_as_segments_and_not_as_a_chain(cli: Cli, documents: Path) -> None:
    hit = {}
    for tokens in ("chained", "segment,separator=7 8", "segment,separator=7 8,algorithm=vllm-sha256-cbor,seed=0"):
        done = cli("replay", documents, "--tokens", tokens, "--json")
        hit[tokens] = json.loads(done.out)["summary"]["workers"]["each"][0]["hit_tokens"]
    assert list(hit.values()) == [0, 8, 8]


def test_plugins_lists_what_an_algorithm_hashes_and_needs(cli: Cli) -> None:
    parts = json.loads(cli("plugins", "--json").out)["parts"]
    found = {part["name"]: part for part in parts if part["kind"] == "hash algorithm"}
    assert found["vllm-xxhash-cbor"]["needs"] == ["cbor2", "xxhash"]
    assert found["lmcache-mp"]["layout"] == "BLAKE3(parent ‖ tokens as big-endian u32)"
    assert [name for name, part in found.items() if part["caution"]] == ["lmcache-builtin"]
    text = cli("plugins").out
    assert "needs cbor2, xxhash" in text
    assert "caution: not a hash to identify content by" in text
