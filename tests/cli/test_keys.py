"""``kvbench keys``, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

PROMPT = " ".join(map(str, range(40)))
MP = "lmcache-mp,algorithm=lmcache-mp-sha256-cbor,seed=0,chunk=16"
VLLM = "vllm,algorithm=vllm-sha256-cbor,seed=0"


def test_equal_keys_are_said_to_be_and_exit_with_0(cli: Cli) -> None:
    run = cli("keys", "check", "--tokens", PROMPT, "--a", MP, "--b", VLLM)
    assert (run.code, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[0] == "equal: all 2 keys are the same"
    assert "both hash the same bytes from the same root" in run.out
    assert lines[-1].split() == ["16–31", *["fedd9e4abebebbe6f6cf96b682f08d31…", "16–31"], lines[-1].split()[3], "yes"]


def test_different_keys_name_the_first_setting_to_blame_and_exit_with_1(cli: Cli) -> None:
    run = cli("keys", "check", "--tokens", PROMPT, "--a", f"{VLLM},model=x", "--b", "vllm,seed=1,model=y")
    assert (run.code, run.err) == (1, "")
    assert run.out.startswith("different: algorithm: SHA-256 of canonical CBOR")
    rows = {line.split()[0]: line for line in run.out.splitlines() if line}
    assert "yes" in rows["seed"].split()
    assert "no" in rows["model"].split()
    assert "not part of a key of vllm" in rows["model"]


def test_a_random_root_shows_no_hashes(cli: Cli) -> None:
    same = "algorithm=lmcache-sha256-cbor,vllm=0.28,chunk=16,model=m,dtype=half"
    arguments = ("keys", "check", "--tokens", PROMPT, "--a", same, "--b", same)
    run = cli(*arguments)
    assert run.code == 1
    assert run.out.startswith("different: seed: ")
    assert "random" in run.out.splitlines()[-1]
    document = json.loads(cli(*arguments, "--json").out)
    assert document["first_field"] == "seed"
    assert document["a"]["root"] is None
    assert [(key["hash"], key["text"]) for key in document["a"]["keys"]] == [(None, None)] * 2


def test_json_has_every_key_in_full_and_as_its_system_writes_it(cli: Cli) -> None:
    setup = "algorithm=lmcache-sha256-cbor,seed=0,chunk=16,model=m,dtype=half,tag.user=alice"
    run = cli("keys", "check", "--tokens", PROMPT, "--a", setup, "--b", f"{setup},world=2", "--json")
    assert (run.code, run.err) == (1, "")
    document = json.loads(run.out)
    assert (document["equal"], document["equal_keys"], document["first_field"]) == (False, 0, "world")
    assert document["differences"] == [
        {"field": "world", "a": 1, "b": 2, "matters": True, "why": "it is part of a key of lmcache"}
    ]
    assert document["a"]["keys"][0] == {
        "start": 0,
        "end": 16,
        "hash": "7913e9343b88bdf9",
        "text": "m@1@0@7913e9343b88bdf9@half@user%alice",
    }
    assert document["b"]["setup"]["tags"] == [["user", "alice"]]


@pytest.mark.parametrize(
    "text", [PROMPT, PROMPT.replace(" ", ", "), PROMPT.replace(" ", "\n"), json.dumps([*range(40)])]
)
def test_a_prompt_is_read_from_a_file(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "prompt").write_text(text)
    run = cli("keys", "check", "--tokens-file", "prompt", "--a", MP, "--b", VLLM)
    assert (run.code, run.out.splitlines()[0]) == (0, "equal: all 2 keys are the same")


def test_a_prompt_is_a_row_of_a_trace(cli: Cli) -> None:
    cli("trace", "make", "rag,ids=token,requests=3,document_tokens=50,system_tokens=0", "-o", "rag.arrow")
    run = cli("keys", "check", "--trace", "rag.arrow", "--row", "3", "--a", MP, "--b", VLLM, "--json")
    assert run.code == 0
    assert len(json.loads(run.out)["a"]["keys"]) >= 4 * 50 // 16
    late = cli("keys", "check", "--trace", "rag.arrow", "--row", "4", "--a", MP, "--b", VLLM)
    assert (late.code, late.err) == (2, "error: rag.arrow has 3 rows, and row 4 was asked for\n")


def test_a_trace_of_block_ids_has_no_prompts(cli: Cli, sample: Path) -> None:
    run = cli("keys", "check", "--trace", sample, "--a", MP, "--b", VLLM)
    assert run.code == 2
    assert "has no column token_ids" in run.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give the prompt with one of --tokens, --tokens-file and --trace"),
        (("--tokens", "1", "--trace", "x"), "give the prompt with one of"),
        (("--tokens", "1", "--row", "1"), "--row has no effect without --trace"),
        (("--tokens", "1 two"), "--tokens is not a list of token ids"),
        (("--tokens", "[1, 2"), "--tokens is not a JSON list of token ids"),
        (("--tokens", '{"a": 1}'), "--tokens is not a JSON list of token ids: it is {'a': 1}\n"),
        (("--tokens", '"1 2"'), "--tokens is not a JSON list of token ids: it is '1 2'\n"),
        (("--tokens", "{1, 2}"), "--tokens is not a JSON list of token ids: "),
        (("--tokens", "1 true"), "--tokens is not a list of token ids: 'true' is no whole number; give a JSON list"),
        (("--tokens", "[1, 2.5]"), "ids are integers"),
        (("--tokens", "1 -1"), "-1"),
        (("--tokens", f"1 {2**32}"), "4294967296"),
        (("--tokens", ""), "0 tokens fill no block"),
        (("--tokens-file", "absent"), "absent: cannot be read"),
    ],
)
def test_prompts_that_are_none_are_bad_input(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    run = cli("keys", "check", *arguments, "--a", MP, "--b", VLLM)
    assert run.code == 2
    assert message in run.err
    assert "Traceback" not in run.err


def test_presets_are_listed_with_what_they_set(cli: Cli) -> None:
    run = cli("keys", "presets")
    assert (run.code, run.err) == (0, "")
    assert "algorithm=vllm-sha256,chunk=16" in run.out


def test_help_says_what_the_exit_code_means(cli: Cli) -> None:
    assert "Exit code: 0 the keys are equal, 1 they differ, 2 bad input." in cli("keys", "check", "--help").out
