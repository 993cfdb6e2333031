"""Hashes and offsets in place of tokens, in any form, and what is refused (row LM-27)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from kvbench import ArgumentError
from kvbench.tokens import BlockHasher

WHOLE = "must be a number of tokens, a whole one from 0 to 4,294,967,295"
EACH = "must be a sequence with a value for each block"


@pytest.mark.parametrize(
    ("hashes", "offsets", "message"),
    [
        ([1], [-1], f"offset 0 is -1; it {WHOLE}"),
        ([1, 2, 3], [4, 4, 4.7], f"offset 2 is 4.7; it {WHOLE}"),
        ([1], np.array([4.0]), f"offset 0 is .*4.0.*; it {WHOLE}"),
        ([1], ["4"], f"offset 0 is '4'; it {WHOLE}"),
        ([1], ["a"], f"offset 0 is 'a'; it {WHOLE}"),
        ([1], [True], f"offset 0 is True; it {WHOLE}"),
        ([1], pa.array([None], pa.int64()), f"offset 0 is None; it {WHOLE}"),
        ([1], [[4]], rf"offset 0 is \[4\]; it {WHOLE}"),
        ([1, 2, 3], [2**62] * 3, f"offset 0 is 4611686018427387904; it {WHOLE}"),
        ([1], 4, f"offsets = 4 {EACH}"),
        ([1], "4", f"offsets = '4' {EACH}"),
        ([1], np.array([[4]]), f"offsets = .* {EACH}"),
        (5, [4], f"hashes = 5 {EACH}"),
        (bytes(2), [4, 4], f"hashes = .* {EACH}"),
        ([2**64], [1], "hash 0 is 18446744073709551616, which has more than 64 bits"),
        ([1, -(2**63) - 1], [1, 1], "hash 1 is -9223372036854775809, which has more than 64 bits"),
        (["a"], [1], "hash 0 is 'a'; it must be an integer or the bytes of a digest"),
        (np.array([1.0]), [1], "hash 0 is .*1.0.*; it must be an integer or the bytes of a digest"),
        ([True], [1], "hash 0 is True; it must be an integer"),
    ],
)
@pytest.mark.parametrize("rules", ["strict", "lmcache"])
def test_LM_27_hashes_and_offsets_that_are_none_are_refused(
    hashes: Any, offsets: Any, message: str, rules: Literal["strict", "lmcache"]
) -> None:
    with pytest.raises(ArgumentError, match=message):
        BlockHasher(rules=rules).blocks(hashes=hashes, offsets=offsets)


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        lambda values: np.array(values, np.uint64),
        lambda values: [*np.array(values, np.uint64)],
        lambda values: pa.array(values, pa.uint64()),
        lambda values: pa.chunked_array([pa.array(values, pa.uint64())]),
    ],
)
def test_LM_27_ready_hashes_and_offsets_may_come_in_any_form_of_integers(form: Any) -> None:
    numbers = [1, 2**63, 2**64 - 1]
    found = BlockHasher().blocks(hashes=form(numbers), offsets=form([16, 16, 5]))
    assert list(found) == [(0, 16, 1), (16, 32, 2**63), (32, 37, 2**64 - 1)]
    assert {type(digest) for digest in found.digests} == {int}
    assert found.keys.tolist() == numbers


def test_LM_27_the_bytes_of_digests_are_ready_hashes_too() -> None:
    hasher = BlockHasher(block_tokens=4)
    whole = hasher.blocks(range(8))
    assert hasher.blocks(hashes=whole.digests, offsets=[4, 4]).keys.tolist() == whole.keys.tolist()
    with pytest.raises(ArgumentError, match="is not of 32 bytes"):
        hasher.blocks(hashes=[b"x"], offsets=[4])
