"""The blocks and segments of one prompt: masks, ready hashes, resumed chains, tails.

Rows OP-01, OP-02, OP-05, OP-09, LM-07, LM-08, LM-25, LM-26, LM-27, LM-30; the mask and segment cases
of ``golden_lmcache.json``.
"""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvbench
from kvbench import ArgumentError, ConfigError
from kvbench.tokens import BlockHasher, SegmentHasher, make_hash, token_array
from kvbench.tokens.separators import segments
from tests.prompts import token_trace

C = 16
LMCACHE = "lmcache-sha256-cbor,seed=0"
FIFTY = [*range(50)]
IDS = st.integers(0, 2**32 - 1)


def falses(count: int, length: int = 50) -> list[bool]:
    return [False] * count + [True] * (length - count)


def lmcache_hasher(**settings: Any) -> BlockHasher:
    return BlockHasher(LMCACHE, block_tokens=C, tails="keep", **settings)


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Any]:
    found = json.loads((shared / "golden/golden_lmcache.json").read_text())["keys_masks_segment"]
    assert isinstance(found, dict)
    return found


# -- blocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "spans"),
    [
        (0, []),
        (1, [(0, 1)]),
        (C - 1, [(0, C - 1)]),
        (C, [(0, C)]),
        (C + 1, [(0, C), (C, C + 1)]),
        (2 * C, [(0, C), (C, 2 * C)]),
    ],
)
@pytest.mark.parametrize("tails", ["drop", "keep"])
def test_OP_01_prompts_are_cut_into_blocks_of_one_size(
    length: int, spans: list[tuple[int, int]], tails: Literal["drop", "keep"]
) -> None:
    found = BlockHasher(block_tokens=C, tails=tails).blocks(range(length))
    full = [(start, end) for start, end in spans if tails == "keep" or end - start == C]
    assert [(start, end) for start, end, _ in found] == full
    assert len(found) == len(found.keys) == len(full)


def test_OP_01_the_usual_block_has_256_tokens() -> None:
    assert BlockHasher().blocks(range(600)).ends.tolist() == [256, 512]


def test_OP_02_a_partial_block_is_kept_for_its_very_length_and_only_where_asked_for() -> None:
    """LM-07: off by default, as in LMCache's configuration; its databases built without one have it on."""
    kept = BlockHasher(block_tokens=C, tails="keep")
    short, same, longer = (kept.blocks(range(length)).keys.tolist() for length in (20, 20, 24))
    assert short == same
    assert short[0] == longer[0]
    assert short[1] != longer[1]
    dropped = BlockHasher(block_tokens=C).blocks(range(20))
    assert dropped.keys.tolist() == short[:1]


@given(st.lists(IDS, min_size=1, max_size=60), st.data())
def test_LM_08_equal_prefixes_have_equal_keys_and_a_change_reaches_all_later_ones(
    tokens: list[int], data: st.DataObject
) -> None:
    """From the root (0 without vLLM) on: keys of blocks < j // c are equal, all later ones differ."""
    at = data.draw(st.integers(0, len(tokens) - 1))
    changed = [*tokens]
    changed[at] ^= data.draw(st.integers(1, 2**32 - 1))
    for choice in ("blake3", "lmcache-builtin"):
        hasher = BlockHasher(choice, block_tokens=4, tails="keep")
        equal = hasher.blocks(tokens).keys == hasher.blocks(changed).keys
        assert equal.tolist() == [number < at // 4 for number in range(len(equal))]


def test_LM_08_the_root_of_lmcache_is_0_without_vllm_and_that_of_vllm_with_it() -> None:
    assert make_hash("lmcache-builtin").root == 0
    assert make_hash(LMCACHE).root == 5625442194607170974


@given(st.lists(IDS, max_size=40), st.data())
def test_OP_09_a_resumed_chain_is_the_chain_in_one_at_every_split(tokens: list[int], data: st.DataObject) -> None:
    hasher = BlockHasher(block_tokens=4, tails="keep")
    whole = hasher.blocks(tokens)
    for split in range(1, len(tokens) // 4 + 1):
        rest = hasher.blocks(tokens, start=4 * split, parent=whole.digests[split - 1])
        assert list(rest) == list(whole)[split:]
    unaligned = data.draw(st.integers(0, len(tokens)).filter(lambda at: at % 4))
    with pytest.raises(ArgumentError, match=f"start is {unaligned}, not a multiple of the block size of 4"):
        hasher.blocks(tokens, start=unaligned, parent=bytes(32))


def test_OP_09_without_a_parent_the_chain_is_hashed_from_the_first_token() -> None:
    hasher = BlockHasher(block_tokens=4)
    assert list(hasher.blocks(range(16), start=8)) == list(hasher.blocks(range(16)))[2:]
    assert list(hasher.blocks(range(16), start=4, end=10)) == list(hasher.blocks(range(16)))[1:2]
    for start, end in ((20, None), (8, 4), (0, 17), (-4, None)):
        with pytest.raises(ArgumentError, match=r"not in order within 16 tokens"):
            hasher.blocks(range(16), start=start, end=end)


def test_the_parent_of_a_first_block_is_the_root_of_a_namespace() -> None:
    hasher = BlockHasher(block_tokens=4)
    root = kvbench.Namespace(adapter="a").root()
    assert not set(hasher.blocks(range(8), parent=root).keys) & set(hasher.blocks(range(8)).keys)


@pytest.mark.parametrize("size", [0, -4, "4", 2.5, True, None])
def test_a_block_size_is_a_whole_number(size: Any) -> None:
    with pytest.raises(ConfigError, match=f"block_tokens = {size!r} must be a whole number, at least 1"):
        BlockHasher(block_tokens=size)
    assert list(BlockHasher(block_tokens=np.int64(4)).blocks(range(8))) == list(  # type: ignore[arg-type]
        BlockHasher(block_tokens=4).blocks(range(8))
    )


def test_rules_and_tails_are_among_their_choices() -> None:
    rules: Any = "x"
    for make in (BlockHasher, lambda **given: SegmentHasher(separator=[7], **given)):
        with pytest.raises(ConfigError, match="rules = 'x' is not one of strict, lmcache"):
            make(rules=rules)
    with pytest.raises(ConfigError, match="tails = 'x' is not one of drop, keep"):
        BlockHasher(tails=rules)


def test_a_hasher_refuses_what_has_no_effect() -> None:
    with pytest.raises(ConfigError, match="tails = keep has no effect with a lookahead of 1"):
        BlockHasher("dynamo,lookahead=1", tails="keep")
    with pytest.raises(ConfigError, match="lookahead of 1 has no effect"):
        SegmentHasher("dynamo,lookahead=1", separator=[7])
    hasher, by_segment = BlockHasher(block_tokens=4), SegmentHasher(separator=[7])
    for no_effect in ({"parent": bytes(32)}, {"start": 4}, {"end": 4}, {"extras": []}):
        with pytest.raises(ArgumentError, match="have no effect on ready hashes"):
            hasher.blocks(hashes=[1], offsets=[4], **no_effect)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="has no effect on ready hashes"):
        by_segment.blocks(hashes=[1], offsets=[4], parent=bytes(32))
    for each in (hasher, by_segment):
        with pytest.raises(ArgumentError, match="not both"):
            each.blocks([1], hashes=[1], offsets=[1])


# -- masks ---------------------------------------------------------------------------------------


def test_LM_25_masks_leave_out_leading_blocks_and_change_no_hash(golden: dict[str, Any]) -> None:
    cases = {case["desc"]: case["r"] for case in golden["mask"]}
    for desc, count in (("F=0", 0), ("F=16", 16), ("F=48", 48)):
        for rules in ("strict", "lmcache"):
            found = lmcache_hasher(rules=rules).blocks(FIFTY, mask=falses(count))
            assert [list(block) for block in found] == cases[desc]["ok"]


@pytest.mark.parametrize("rules", ["strict", "lmcache"])
@pytest.mark.parametrize("count", [7, 50])
def test_LM_25_a_count_of_falses_that_is_no_multiple_of_the_block_raises(
    rules: Literal["strict", "lmcache"], count: int
) -> None:
    with pytest.raises(ValueError, match=f"the number of Falses of the mask is {count}, not a multiple"):
        lmcache_hasher(rules=rules).blocks(FIFTY, mask=falses(count))


def test_LM_26_a_false_in_the_middle_is_refused_where_lmcache_takes_it_for_a_leading_one(
    golden: dict[str, Any],
) -> None:
    """The difference: LMCache counts Falses, wherever they are and however long the mask."""
    cases = {case["desc"]: case["r"] for case in golden["mask"]}
    middle = [True] * 32 + [False] * 16 + [True] * 2
    for mask, desc, message in (
        (middle, "mid false: 16 False located in the middle (chunk 2)", "False at token 32, behind a True"),
        (falses(16, 64), "mask longer than tokens (64 long, 16 false)", "has 64 values, and there are 50 tokens"),
        (falses(16, 20), "mask shorter than tokens (20 long, 16 false)", "has 20 values, and there are 50 tokens"),
    ):
        with pytest.raises(ArgumentError, match=message):
            lmcache_hasher().blocks(FIFTY, mask=mask)
        found = lmcache_hasher(rules="lmcache").blocks(FIFTY, mask=mask)
        assert [list(block) for block in found] == cases[desc]["ok"]


@pytest.mark.parametrize("form", [list, tuple, np.array, pa.array])
def test_masks_may_come_in_any_form(form: Any) -> None:
    assert lmcache_hasher().blocks(FIFTY, mask=form(falses(48))).starts.tolist() == [48]


@pytest.mark.parametrize("mask", [[0, 1], [[True]], [[True], [True, False]], ["x"]])
def test_a_mask_of_other_values_is_refused(mask: Any) -> None:
    with pytest.raises(ArgumentError, match="is not a sequence of booleans"):
        lmcache_hasher().blocks([1, 2], mask=mask)


# -- ready hashes --------------------------------------------------------------------------------


@pytest.mark.parametrize("hasher", [lmcache_hasher(), SegmentHasher(LMCACHE, separator=[7])])
def test_LM_27_ready_hashes_stand_for_tokens_with_the_length_of_each_block(
    golden: dict[str, Any], hasher: BlockHasher | SegmentHasher
) -> None:
    (expected,) = (case["r"]["ok"] for case in golden["mask"] if case["desc"] == "hashes+offsets")
    found = hasher.blocks(hashes=[1, 2, 3], offsets=[16, 16, 5])
    assert [list(block) for block in found] == expected
    assert found.keys.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="neither tokens nor hashes"):
        hasher.blocks()
    with pytest.raises(ValueError, match="hashes without offsets"):
        hasher.blocks(hashes=[1])


def test_LM_27_lists_of_different_lengths_and_masks_are_checked_where_lmcache_does_not(
    golden: dict[str, Any],
) -> None:
    """The difference: LMCache stops at the shorter list, and applies no mask to ready hashes."""
    cases = {case["desc"]: case["r"].get("ok") for case in golden["mask"]}
    strict, lmcache = lmcache_hasher(), lmcache_hasher(rules="lmcache")
    shorter: dict[str, Any] = {"hashes": [1, 2, 3], "offsets": [16, 16]}
    with pytest.raises(ArgumentError, match="there are 3 hashes, and offsets of 2 blocks"):
        strict.blocks(**shorter)
    stopped = [list(block) for block in lmcache.blocks(**shorter)]
    assert stopped == cases["hashes longer than offsets -> zip stops"]
    masked: dict[str, Any] = {"hashes": [1, 2, 3], "offsets": [16, 16, 5], "mask": falses(16, 37)}
    assert [list(block) for block in strict.blocks(**masked)] == [[16, 32, 2], [32, 37, 3]]
    unmasked = [list(block) for block in lmcache.blocks(**masked)]
    assert unmasked == cases["hashes+offsets+mask(16 false) -> mask is NOT applied"]
    with pytest.raises(ArgumentError, match="has 8 Falses, which is not where a block ends"):
        strict.blocks(hashes=[1, 2, 3], offsets=[16, 16, 5], mask=falses(8, 37))


def test_LM_27_a_tuple_of_tokens_is_taken_where_lmcache_takes_lists_and_tensors_only() -> None:
    assert list(lmcache_hasher().blocks(tuple(FIFTY))) == list(lmcache_hasher().blocks(FIFTY))


def test_OP_05_the_same_trace_as_tokens_and_as_hashes_has_the_same_hits() -> None:
    """What the ids stand for is in the result: nothing checked them against tokens."""
    prompts = [[*range(16)], [*range(8), *range(50, 58)], [*range(16)], [*range(3)]]
    tokens = token_trace(prompts, block_tokens=4)
    hasher = BlockHasher(block_tokens=4, tails="keep")
    ids = pa.array([hasher.blocks(prompt).keys for prompt in prompts], pa.list_(pa.uint64()))
    hashes = tokens.drop_columns(["token_ids"]).append_column("block_ids", ids)
    by_token, by_hash = (kvbench.replay(table, keep_requests=True) for table in (tokens, hashes))
    assert by_token.requests is not None
    assert by_hash.requests is not None
    assert by_token.requests["hit_blocks"] == by_hash.requests["hit_blocks"]
    assert by_token.requests["hit_blocks"].to_pylist() == [0, 2, 4, 0]
    assert (by_token.manifest["trace"]["ids"], by_hash.manifest["trace"]["ids"]) == ("token_ids", "block_ids")


# -- segments ------------------------------------------------------------------------------------


def test_LM_30_all_segment_cases_of_lmcache(golden: dict[str, Any]) -> None:
    counts = {"mask 5 false": 5, "mask 4 false": 4, "mask all false": 2}
    for case in golden["segment"]:
        hasher = SegmentHasher(LMCACHE, separator=case["sep_tokens"], rules="lmcache")
        masked = [count for desc, count in counts.items() if case["desc"].startswith(desc)]
        mask = falses(masked[0], len(case["tokens"])) if masked else None
        if "error" in case["r"]:
            with pytest.raises(ArgumentError):
                hasher.blocks(case["tokens"], mask=mask)
        else:
            assert [list(block) for block in hasher.blocks(case["tokens"], mask=mask)] == case["r"]["ok"]


def test_LM_30_empty_segments_are_left_out_where_lmcache_has_them() -> None:
    """The difference; and a prompt without a separator, or of no token, is no error."""
    hasher = SegmentHasher(separator=[7, 8])
    for tokens, spans in (
        ([7, 8, 1, 2], [(2, 4)]),
        ([1, 7, 8, 7, 8, 2], [(0, 1), (5, 6)]),
        ([5], [(0, 1)]),
        ([], []),
        ([7, 8], []),
    ):
        assert [(start, end) for start, end, _ in hasher.blocks(tokens)] == spans
    assert list(hasher.blocks([1, 2], mask=[False, False])) == []


def test_LM_30_documents_hit_in_any_order_as_segments_and_up_to_another_order_as_a_chain() -> None:
    a, b, c, apart = [*range(10, 22)], [*range(30, 38)], [*range(50, 55)], [7, 8]
    rows = [[*x, *apart, *y, *apart, *z] for x, y, z in permutations([a, b, c])]
    hasher = SegmentHasher(separator=apart)
    assert len({key for row in rows for key in hasher.blocks(row).keys.tolist()}) == 3
    table = token_trace(rows, block_tokens=4)
    for tokens, hits in (("segment,separator=7 8", [0, 6, 6, 6, 6, 6]), ("chained", [0, 3, 0, 2, 0, 1])):
        result = kvbench.replay(table, tokens=tokens, keep_requests=True)
        assert result.requests is not None
        assert result.requests["hit_blocks"].to_pylist() == hits
        assert result.requests["hit_tokens"].to_pylist() == [4 * count for count in hits]


@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_segments_and_separators_make_up_the_prompt(tokens: list[int], separator: list[int]) -> None:
    found = segments(token_array(tokens), token_array(separator))
    parts = [tokens[start:end] for start, end in found]
    rebuilt = list(parts[0])
    for part in parts[1:]:
        rebuilt += separator + part
    assert rebuilt == tokens
    joined = [",".join(map(str, [*part, ""])) for part in parts]
    assert all("," + ",".join(map(str, separator)) + "," not in "," + text for text in joined)
    assert found[0][0] == 0
    assert found[-1][1] == len(tokens)


@given(st.lists(st.lists(st.integers(10, 99), max_size=9), min_size=1, max_size=4), st.sampled_from([1, 2, 4]))
def test_keys_of_segments_in_a_replay_are_chains_within_each_of_them(documents: list[list[int]], block: int) -> None:
    prompt = documents[0]
    for document in documents[1:]:
        prompt = [*prompt, 7, 8, *document]
    hasher = BlockHasher(block_tokens=block)
    expected = {key for document in documents for key in hasher.blocks(document).keys.tolist()}
    table = token_trace([prompt or [7, 8]] * 2, block_tokens=block)
    result = kvbench.replay(table, tokens="segment,separator=7 8", keep_requests=True)
    assert result.requests is not None
    assert result.requests["blocks"].to_pylist() == [len(expected)] * 2
    assert result.requests["hit_tokens"].to_pylist() == [0, block * len(expected)]


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=2, max_size=12))
def test_the_curve_of_segments_is_that_of_replays(rows: list[list[int]]) -> None:
    """Each document has a length of its own, so blocks of a prompt hold fewer tokens than it has."""
    table = token_trace([[t for each in row for t in [*range(9 * each, 10 * each + 3), 70]] for row in rows])
    tokens = "segment,separator=70"
    (point,) = kvbench.curve(table, tokens=tokens, capacities="5").curve
    rates = kvbench.replay(table, tokens=tokens, capacity=5).rates
    assert point["rates"] == pytest.approx({name: rates[name] for name in point["rates"]})
