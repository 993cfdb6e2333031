"""The contract of hash algorithms: a digest depends on a block's tokens and on all before it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ArgumentError
from kvbench.specs import HashAlgorithmSpec, Spec
from kvbench.testing.parts import CONTRACT, PartContract
from kvbench.tokens import ChainHash, token_array
from kvbench.tokens.hashes.base import build_hash

if TYPE_CHECKING:
    from kvbench.tokens.arrays import Tokens

BLOCK = 4
TOKENS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40).map(token_array)

DATABASE_PARAMS = {"algorithm", "separator"}
"""What the built-in token databases call parameters of their own."""


class HashAlgorithmContract(PartContract):
    """Inherit, and set ``spec_name`` (and ``params``); or override ``make``."""

    kind: ClassVar[type[Spec]] = HashAlgorithmSpec

    def make(self) -> ChainHash:
        """A fresh algorithm; the test is skipped where a package that it needs is missing."""
        assert isinstance(self.spec, HashAlgorithmSpec)
        missing = [package for package in self.spec.needs if importlib.util.find_spec(package) is None]
        if missing:
            pytest.skip(f"needs {', '.join(missing)}")
        return build_hash(self.spec, self.spec.parse_params(self.params))

    def test_its_parameters_are_not_called_as_those_of_token_databases(self) -> None:
        assert not DATABASE_PARAMS & {param.name for param in self.spec.params}

    def test_digests_are_of_the_declared_form(self) -> None:
        made = self.make()
        digest = made.chain(made.root, token_array(range(BLOCK)))
        assert type(digest) is {"bytes": bytes, "int": int}[made.form]

    @CONTRACT
    @given(tokens=TOKENS)
    def test_blocks_at_once_are_blocks_one_by_one(self, tokens: Tokens) -> None:
        made, parent, expected = self.make(), self.make().root, []
        for at in range(0, len(tokens), BLOCK):
            end = at + BLOCK
            parent = made.chain(parent, tokens[at:end], None, tokens[end : end + made.lookahead])
            expected.append(parent)
        assert made.chain_blocks(made.root, tokens, BLOCK) == expected

    @CONTRACT
    @given(tokens=TOKENS, data=st.data())
    def test_a_resumed_chain_is_the_chain_in_one(self, tokens: Tokens, data: st.DataObject) -> None:
        made = self.make()
        whole = made.chain_blocks(made.root, tokens, BLOCK)
        split = data.draw(st.integers(1, len(whole)))
        assert made.chain_blocks(whole[split - 1], tokens[split * BLOCK :], BLOCK) == whole[split:]

    @CONTRACT
    @given(tokens=TOKENS, data=st.data())
    def test_another_token_changes_the_keys_from_its_block_on_and_no_others(
        self, tokens: Tokens, data: st.DataObject
    ) -> None:
        made = self.make()
        at = data.draw(st.integers(0, len(tokens) - 1))
        other = tokens.copy()
        other[at] ^= data.draw(st.integers(1, 2**32 - 1))
        keys, others = (made.keys(made.chain_blocks(made.root, each, BLOCK)) for each in (tokens, other))
        # A block that looks ahead at the token has its hash changed by it, too.
        first = max(0, at - made.lookahead) // BLOCK
        assert (keys == others).tolist() == [number < first for number in range(len(keys))]

    @CONTRACT
    @given(tokens=TOKENS)
    def test_keys_are_unsigned_64_bit_and_the_same_one_by_one(self, tokens: Tokens) -> None:
        made = self.make()
        digests = made.chain_blocks(made.root, tokens, BLOCK)
        assert made.keys(digests).dtype == np.uint64
        assert made.keys(digests).tolist() == [made.key(digest) for digest in digests]
        assert made.keys([]).tolist() == []

    @CONTRACT
    @given(tokens=TOKENS)
    def test_two_instances_agree(self, tokens: Tokens) -> None:
        first, second = self.make(), self.make()
        first.chain_blocks(first.root, tokens[::-1].copy(), BLOCK)
        assert first.root == second.root
        assert first.chain_blocks(first.root, tokens, BLOCK) == second.chain_blocks(second.root, tokens, BLOCK)

    def test_extra_keys_have_an_effect_or_are_refused(self) -> None:
        made, tokens = self.make(), token_array(range(2 * BLOCK))
        if made.takes_extras:
            plain, extra = (made.chain_blocks(made.root, tokens, BLOCK, [None, each]) for each in (None, (1,)))
            assert plain[0] == extra[0]
            assert plain[1] != extra[1]
        else:
            with pytest.raises(ArgumentError, match="no effect"):
                made.chain_blocks(made.root, tokens, BLOCK, [None, (1,)])
            with pytest.raises(ArgumentError, match="no effect"):
                made.chain(made.root, tokens, (1,))
        if made.takes_extras:
            with pytest.raises(ArgumentError, match="extra keys for 1 blocks"):
                made.chain_blocks(made.root, tokens, BLOCK, [None])

    def test_a_root_of_a_namespace_sets_it_apart_where_it_is_taken(self) -> None:
        made, tokens = self.make(), token_array(range(BLOCK))
        if not made.takes_root:
            pytest.skip("the algorithm has a root of its own")
        assert len({made.chain(root, tokens) for root in (made.root, bytes(32), b"\1" * 32)}) == 3
