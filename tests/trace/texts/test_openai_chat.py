"""Logs of chat requests: the wrappings, the times, and what turns share."""

from __future__ import annotations

import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.openai_chat import OpenAIChatFormat
from kvbench.trace.schema import TraceFacts

USER = {"role": "user", "content": "What is the capital of France?"}
ANSWER = {"role": "assistant", "content": "The capital of France is Paris."}
RESPONSE = {"id": "r1", "created": 1_700_000_002, "choices": [{"message": ANSWER}], "usage": {"prompt_tokens": 14}}
REQUEST = {"model": "m", "messages": [USER]}
WRAPPINGS = {
    "two bodies": {"timestamp": 1_700_000_000.5, "request": REQUEST, "response": RESPONSE},
    "batch": {"custom_id": "c", "created": 1_700_000_000.5, "body": REQUEST, "response": {"body": RESPONSE}},
    "flat": REQUEST | {"startTime": "2023-11-14T22:13:20.500000Z", "response": RESPONSE},
    "one body": REQUEST | RESPONSE | {"start_time": "2023-11-14 22:13:20.5"},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_every_wrapping_gives_the_same_request(read, wrapping):
    row = read(OpenAIChatFormat(), WRAPPINGS[wrapping])[0]
    assert row["arrival_ns"] == 1_700_000_000_500_000_000
    assert (row["model"], row["session_id"]) == ("m", None)
    assert row["request_id"] == ("c" if wrapping == "batch" else "r1")
    assert row["input_tokens"] == 15
    assert row["output_tokens"] == len(row["output_token_ids"]) == 8


def test_a_turn_and_its_answer_are_the_beginning_of_the_next_turn(read):
    second = {"messages": [USER, ANSWER, {"role": "user", "content": "And of Spain?"}]}
    rows = read(
        OpenAIChatFormat(),
        {"timestamp": 0, "request": REQUEST, "response": RESPONSE, "session_id": "s", "latency_ms": 1500},
        {"timestamp": 4, "request": second, "response": RESPONSE, "session_id": "s"},
    )
    first = rows[0]["token_ids"] + rows[0]["output_token_ids"]
    assert rows[1]["token_ids"][: len(first)] == first
    assert [row["turn"] for row in rows] == [0, 1]
    assert [row["think_time_ns"] for row in rows] == [None, 2_500_000_000]


def test_what_the_log_says_of_lengths_is_compared_with_the_rule(read):
    log = ReadLog()
    read(OpenAIChatFormat(), WRAPPINGS["flat"], WRAPPINGS["flat"], log=log)
    assert log.carried["note on usage"].endswith("28 tokens in all, where the rule counts 30 (107%)")


def test_pictures_tools_and_calls_tell_prompts_apart(read):
    def shown(url):
        return [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]

    def called(name, id):
        return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "function": {"name": name}}]}

    prompts = [
        {"messages": [USER | {"content": shown("data:1")}]},
        {"messages": [USER | {"content": shown("data:2")}]},
        {"messages": [USER], "tools": [{"name": "f"}]},
        {"messages": [USER], "tools": [{"name": "g"}]},
        {"messages": [USER, called("f", "1")]},
        {"messages": [USER, called("f", "2")]},
        {"messages": [USER, called("g", "2")]},
    ]
    log = ReadLog()
    rows = read(OpenAIChatFormat(), *({"timestamp": 0, "request": prompt} for prompt in prompts), log=log)
    assert len({tuple(row["token_ids"]) for row in rows}) == 6
    assert rows[4]["token_ids"] == rows[5]["token_ids"]
    assert log.ignored_fields == {"content of type image_url": 2}


def test_numbers_count_the_unit_that_is_said_and_never_silently_another(read):
    row = {"timestamp": 1_700_000_000_500, "request": REQUEST}
    assert read(OpenAIChatFormat(time_unit="ms"), row)[0]["arrival_ns"] == 1_700_000_000_500_000_000
    with pytest.raises(TraceError, match="is no time in s since 1970; say which unit it is in"):
        read(OpenAIChatFormat(), row)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"request": REQUEST}, "timestamp = None: is missing; a time is looked for in timestamp, start_time"),
        ({"timestamp": "noon", "request": REQUEST}, "must be a time like"),
        ({"timestamp": "2023-02-30T00:00:00", "request": REQUEST}, "is no date and time that exists"),
        ({"timestamp": 0, "request": {"messages": []}}, "must be a list of messages, at least one"),
        ({"timestamp": 0, "request": {"messages": ["a"]}}, "must be objects, each with role and content"),
        ({"timestamp": 0, "request": {"messages": [{"content": "a"}]}}, "role = None: must be text"),
        ({"timestamp": 0, "request": {"messages": [USER | {"content": 5}]}}, "content = 5: must be text or a list"),
        ({"timestamp": 0, "request": REQUEST, "response": {"choices": [1]}}, r"choices = \[1\]: must be a list"),
        (
            {"timestamp": 0, "request": REQUEST, "usage": {"prompt_tokens": -1}},
            "usage.prompt_tokens = -1",
        ),
    ],
)
def test_a_bad_row_names_the_value_and_the_rule(read, document, message):
    with pytest.raises(TraceError, match=f"row 1, .*{message}"):
        read(OpenAIChatFormat(), document)


# -- user reports --------------------------------------------------------------------------------------


def hits(rows, block_tokens):
    table = pa.table(
        {
            "arrival_ns": pa.array([row["arrival_ns"] for row in rows], pa.int64()),
            "input_tokens": pa.array([row["input_tokens"] for row in rows], pa.uint32()),
            "token_ids": pa.array([row["token_ids"] for row in rows], pa.list_(pa.uint32())),
        }
    ).replace_schema_metadata(TraceFacts().to_metadata())
    result = kvbench.replay(table, block_tokens=block_tokens, keep_requests=True)
    return result.requests["hit_tokens"].to_pylist(), result.summary["misses"]


def asked(read, *prompts):
    """Requests whose prompts are these texts, one byte a token, without the mark of a message (7 bytes + 1)."""
    mark = len("<|u|>\n")
    documents = ({"timestamp": 0, "request": {"messages": [{"role": "u", "content": text}]}} for text in prompts)
    rows = read(OpenAIChatFormat(bytes_per_token=1), *documents)
    for row in rows:
        row["token_ids"] = row["token_ids"][mark : -len("<|assistant|>\n")]
        row["input_tokens"] = len(row["token_ids"])
    return rows


def test_A12_text_made_of_ids_shares_exactly_the_blocks_that_the_ids_share(read):
    """Any fixed text for an id will do: equal ids in front make equal blocks, and no others."""
    ids = [[1, 2, 3, 4], [1, 2, 3, 5], [6, 2, 3, 4]]
    prompts = ["".join(f"{id:016d}" for id in row) for row in ids]
    assert hits(asked(read, *prompts), 16)[0] == [0, 48, 0]


def test_B08_the_same_text_under_another_parent_is_another_block(read):
    assert hits(asked(read, "a" * 16 + "c" * 16, "b" * 16 + "c" * 16), 16)[0] == [0, 0]


def test_B11_after_a_compaction_only_the_leading_blocks_still_in_common_hit(read):
    assert hits(asked(read, "a" * 64 + "b" * 64, "a" * 32 + "z" * 16), 16)[0] == [0, 32]


def test_C05_a_shared_prefix_shorter_than_a_block_hits_nothing_and_a_finer_block_shows_it(read):
    rows = asked(read, "s" * 240 + "a" * 200, "s" * 240 + "b" * 200)
    found, misses = hits(rows, 784)
    assert (found, misses["partial"]) == ([0, 0], 2)
    assert hits(rows, 16)[0] == [0, 240]


def test_C06_hits_never_grow_along_a_chain_of_multiples(read):
    rows = asked(read, "s" * 50 + "a" * 80, "s" * 50 + "b" * 80)
    assert [hits(rows, size)[0][1] for size in (1, 2, 4, 8, 16, 32, 64)] == [50, 50, 48, 48, 48, 32, 0]
