"""Setups of keys as text and as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench import ConfigError, load_registry
from kvbench.tokens.keysetup import KeySetup, parse_setup

REGISTRY = load_registry(autoload=False)
ENGINE = "algorithm=lmcache-sha256-cbor,seed=0,chunk=16"


def setup(text: str) -> KeySetup:
    return parse_setup(text, REGISTRY, "--a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope", "unknown preset of keys 'nope'; known: dynamo, kvbench, lmcache"),
        ("chunk=16", "--a needs algorithm="),
        ("algorithm=blake3", "--a needs chunk="),
        ("algorithm=blak3,chunk=16", "unknown hash algorithm 'blak3'; did you mean 'blake3'"),
        ("vllm,chnk=16", "unknown key 'chnk'; did you mean 'chunk'"),
        ("vllm,chunk=x", "chunk"),
        ("vllm,chunk=0", "chunk = 0 must be from 1 to 4,294,967,295"),
        ("vllm,rank=4294967296", "rank = 4294967296 must be from 0"),
        ("lmcache,world=2,rank=7", "--a: rank = 7 is none of a world of 2: give 0 to world - 1"),
        ("lmcache,rank=1", "--a: rank = 1 is none of a world of 1"),
        ("vllm,seed=3,seed=4", "--a vllm,seed=3,seed=4: seed is given twice"),
        ("algorithm=blake3, algorithm=sha256,chunk=16", "algorithm is given twice"),
        ("lmcache,tag.user=a,tag.user=b", "tag.user is given twice"),
        ("kvbench,model=\udcff", "model = .* is not Unicode text"),
        ("kvbench,tag.\udcff=x", "tag .* is not Unicode text"),
        ("vllm,fold=middle", "fold"),
        ("vllm,word", "'word' is not of the form key=value"),
        ("vllm,tags=5", "tags = '5' must be a table"),
        ("vllm,lookahead=x", "parameter lookahead = 'x' is not of type int"),
        ("absent.toml", "absent.toml: cannot be read"),
    ],
)
def test_setups_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        setup(text)


def test_a_tag_in_a_file_is_text(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text('algorithm = "vllm-sha256"\nchunk = 16\ntags = {user = 5}\n')
    with pytest.raises(ConfigError, match="tag user = 5 must be text"):
        setup(str(file))


def test_a_setup_can_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text(
        'algorithm = "lmcache-sha256-cbor"\nchunk = 16\nseed = 0\nworld = 2\ndtype = "half"\n[tags]\nuser = "alice"\n'
    )
    assert setup(str(file)) == setup(f"{ENGINE},world=2,dtype=half,tag.user=alice")
    assert setup(f"{file},world=4,tag.user=bob") == setup(f"{ENGINE},world=4,dtype=half,tag.user=bob")
