"""Answers that stay in the cache (OP-30, A30): the next turn of a session finds them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.trace.schema import TraceFacts
from tests.stacks import tier

TOKENS = [*range(100, 112)]
"""A prompt of six tokens and its answer of six, which are the next turn's prompt of twelve."""

IDS: dict[str, dict[str, list[list[int]]]] = {
    "block_ids": {"block_ids": [[0, 9], [0, 1, 2]], "output_block_ids": [[1, 2], []]},
    "token_ids": {"token_ids": [TOKENS[:6], TOKENS], "output_token_ids": [TOKENS[6:], []]},
}
CACHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bounded": {"capacity": 10},
    "tiers": {"tiers": [tier("gpu", capacity=10), tier("cpu", capacity=10)]},
    "lower tier": {"tiers": [tier("gpu", capacity=10, write="none"), tier("cpu", capacity=10)]},
    "spill": {"placement": "spill", "tiers": [tier("gpu", capacity=1), tier("cpu", capacity=10)]},
}


def conversation(columns: dict[str, list[list[int]]], inputs: list[int], outputs: list[int] | None) -> pa.Table:
    """A trace at four tokens a block."""
    lists = {"block_ids": pa.uint64(), "token_ids": pa.uint32()}
    table: dict[str, pa.Array] = {
        "arrival_ns": pa.array(range(len(inputs)), pa.int64()),
        "input_tokens": pa.array(inputs, pa.uint32()),
        **{name: pa.array(rows, pa.list_(lists[name.removeprefix("output_")])) for name, rows in columns.items()},
    }
    if outputs is not None:
        table["output_tokens"] = pa.array(outputs, pa.uint32())
    return pa.table(table).replace_schema_metadata(TraceFacts(block_tokens=4, dense=False).to_metadata())


def hits(trace: pa.Table, **settings: Any) -> list[int]:
    result = kvbench.replay(trace, keep_requests=True, **settings)
    assert result.requests is not None
    found = result.requests["hit_blocks"].to_pylist()
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("ids", IDS)
def test_A30_the_next_turn_hits_the_answer_only_if_it_was_stored(ids: str, cache: str) -> None:
    """One block of the prompt is full; with the answer two are, and not three: the last token has no KV yet."""
    trace = conversation(IDS[ids], [6, 12], [6, 1])
    assert hits(trace, **CACHES[cache]) == [0, 1]
    assert hits(trace, store_output=True, **CACHES[cache]) == [0, 2]


@pytest.mark.parametrize("outputs", [[6, 1], [7, 1]])
@pytest.mark.parametrize("ids", IDS)
def test_A30_a_block_is_stored_when_its_last_token_has_kv(ids: str, outputs: list[int]) -> None:
    """One more token of the answer completes the third block."""
    columns: dict[str, list[list[int]]] = {name: [list(row) for row in rows] for name, rows in IDS[ids].items()}
    if ids == "token_ids":
        columns["output_token_ids"][0] = [*TOKENS[6:], 999][: outputs[0]]
    assert hits(conversation(columns, [6, 12], outputs), store_output=True) == [0, 2 + (outputs[0] == 7)]


@pytest.mark.parametrize("ids", IDS)
def test_OP_30_an_answer_is_no_part_of_what_is_asked(ids: str) -> None:
    trace = conversation(IDS[ids], [6, 12], [6, 1])
    for cache in CACHES.values():
        found = {}
        for store in (False, True):
            result = kvbench.replay(trace, store_output=store, **cache)
            blocks = result.summary["blocks"]
            found[store] = blocks
            misses = sum(count for count in result.summary["misses"].values() if count)
            assert blocks["hit"] + misses == blocks["asked"] == 5
        assert found[True]["hit"] == found[False]["hit"] + 1


def test_OP_30_an_answer_of_one_token_or_none_stores_nothing_more() -> None:
    columns: dict[str, list[list[int]]] = {
        "block_ids": [[0, 9], [0, 9], [0, 1, 2]],
        "output_block_ids": [[], [], []],
    }
    trace = conversation(columns, [6, 6, 12], [0, 1, 1])
    for cache in CACHES.values():
        assert hits(trace, store_output=True, **cache) == hits(trace, **cache) == [0, 1, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_OP_30_answers_are_evicted_as_prompts_are(workers: int) -> None:
    columns = {"block_ids": [[0], [0, 1, 2], [5]], "output_block_ids": [[1, 2], [], [6, 7]]}
    columns = {name: [*rows, *rows[1:2]] for name, rows in columns.items()}
    trace = conversation(columns, [4, 12, 4, 12], [9, 1, 9, 1])
    settings: dict[str, Any] = {"workers": workers} if workers > 1 else {}
    tiers = [tier("gpu", capacity=4)]
    assert hits(trace, store_output=True, tiers=tiers)[:3] == [0, 3, 0]
    assert hits(trace, store_output=True, tiers=tiers) == hits(trace, store_output=True, capacity=4)
    assert hits(trace, store_output=True, tiers=tiers)[3] == 1
    assert hits(trace, store_output=True, tiers=[tier("gpu")], **settings)[3] == 3


def test_OP_30_routers_see_answers() -> None:
    trace = conversation(IDS["block_ids"], [6, 12], [6, 1])
    result = kvbench.replay(trace, store_output=True, workers=3, tiers=[tier("gpu", capacity=5)], keep_requests=True)
    assert result.requests is not None
    rows = result.requests.to_pylist()
    assert rows[0]["worker"] == rows[1]["worker"]
    assert (rows[1]["predicted_blocks"], rows[1]["hit_blocks"]) == (2, 2)


@pytest.mark.parametrize(
    ("columns", "outputs", "says"),
    [
        ({"block_ids": [[0]]}, [5], "output_tokens and output_block_ids"),
        ({"block_ids": [[0]], "output_block_ids": [[1]]}, None, "output_tokens and output_block_ids"),
        ({"token_ids": [[0, 1, 2, 3]]}, [5], "output_tokens and output_token_ids"),
    ],
)
def test_OP_30_without_the_columns_it_is_refused(
    columns: dict[str, list[list[int]]], outputs: list[int] | None, says: str
) -> None:
    trace = conversation(columns, [4], outputs)
    both: list[dict[str, Any]] = [{}, {"tiers": [tier("gpu", capacity=3)]}]
    for settings in both:
        with pytest.raises(ConfigError, match=rf"^--store-output needs the columns {says}$"):
            kvbench.replay(trace, store_output=True, **settings)


def test_OP_30_without_ids_it_has_no_effect() -> None:
    trace = pa.table({"arrival_ns": [0], "input_tokens": pa.array([4], pa.uint32())})
    with pytest.raises(ConfigError, match=r"^--store-output has no effect on .*neither block_ids nor token_ids$"):
        kvbench.replay(trace, store_output=True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tails": "keep"}, "no meaning with --tails keep"),
        ({"belady": "on", "capacity": 4}, "--belady on: the bound knows prompts only"),
        ({"belady": "on", "tiers": [tier("gpu", capacity=4)]}, "--belady on: the bound knows prompts only"),
        ({"policy": "belady", "capacity": 4}, "eviction policy belady looks ahead at prompts only"),
        ({"tiers": [tier("gpu", capacity=4, policy="belady")]}, "eviction policy belady looks ahead at prompts only"),
    ],
)
def test_OP_30_what_knows_prompts_only_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kvbench.replay(conversation(IDS["block_ids"], [6, 12], [6, 1]), store_output=True, **settings)
