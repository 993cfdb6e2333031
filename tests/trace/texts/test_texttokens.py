"""The rules that make tokens of text."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ConfigError
from kvbench.trace.formats.texttokens import HashedPieces, make_rule

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


@given(TEXT, TEXT, TEXT, st.integers(1, 11), st.booleans())
def test_equal_prefixes_of_text_give_equal_prefixes_of_tokens_and_no_longer_ones(shared, one, other, size, characters):
    rule = HashedPieces(size, characters=characters)
    texts = [shared + one, shared + other]
    first, second = (rule.encode(text) for text in texts)
    units = [list(text) if characters else list(text.encode()) for text in texts]
    same = next((i for i, pair in enumerate(zip(*units, strict=False)) if pair[0] != pair[1]), min(map(len, units)))
    equal = first[: len(second)] == second[: len(first)]
    whole = same // size
    assert equal[:whole].all()
    assert [len(first), len(second)] == [-(-len(unit) // size) for unit in units]
    if units[0] != units[1]:
        assert not equal[whole : whole + 1].any()


def test_ids_are_the_same_everywhere():
    """Frozen: an id that changed would break every key that was made of it."""
    assert make_rule(bytes_per_token=4).encode("hello world!!").tolist() == [
        3879513243,
        3969660633,
        377523739,
        1935749925,
    ]
    assert make_rule().label == "bytes_per_token=4"


def test_a_short_last_piece_is_not_one_that_ends_in_zeros():
    rule = HashedPieces(4, characters=False)
    assert rule.encode("ab")[0] != rule.encode("ab\0\0")[0]
    assert len(rule.encode("")) == 0


def test_many_pieces_have_different_ids():
    ids = HashedPieces(3, characters=False).encode("".join(f"{number:06d}"[-3:] for number in range(1000)))
    assert len(np.unique(ids)) == 1000


def test_two_rules_at_once_are_refused():
    with pytest.raises(ConfigError, match="bytes_per_token=4 and characters_per_token=1 are different rules"):
        make_rule(bytes_per_token=4, characters_per_token=1)


@pytest.fixture
def words(tmp_path):
    """A tokenizer with one token a word."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_tokenizer_from_a_file_or_its_folder_gives_its_ids_uncut(words):
    for name in (words / "tokenizer.json", words):
        rule = make_rule(tokenizer=str(name))
        assert rule.encode("the cat sat on the cat").tolist() == [1, 2, 3, 0, 1, 2]
        assert "blake3:" in rule.sentence


def test_a_tokenizer_that_is_not_there_or_broken_is_one_error(tmp_path, words):
    with pytest.raises(ConfigError, match=r"there is no such file"):
        make_rule(tokenizer=str(tmp_path / "no.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"bad.json cannot be loaded .*give the path of a tokenizer.json"):
        make_rule(tokenizer=str(tmp_path / "bad.json"))


def test_without_the_package_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"pip install 'kvbench\[text\]'; or do without one, as with bytes_per"):
        make_rule(tokenizer="gpt2")
