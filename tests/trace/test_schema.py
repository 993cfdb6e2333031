"""Columns and metadata: what version 1 takes, and what it says to anything else."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kvbench.errors import TraceError
from kvbench.trace.schema import METADATA_KEY, TraceFacts, normalise_schema

ARRIVAL, TOKENS = ("arrival_ns", pa.int64()), ("input_tokens", pa.uint32())


def test_facts_come_back_from_the_metadata_they_were_written_to():
    facts = TraceFacts(16, "floor", "content", "session", True, "a.jsonl", "mooncake", "blake3:00")
    assert TraceFacts.from_metadata(facts.to_metadata(), "a") == facts


@pytest.mark.parametrize("metadata", [None, {}, {b"pandas": b"{}"}])
def test_without_metadata_the_facts_are_defaults_and_the_block_size_is_unknown(metadata):
    assert TraceFacts.from_metadata(metadata, "a") == TraceFacts(block_tokens=None)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"version": 2}, r"a\.arrow, schema version = 2: this kvbench reads .* version 1; update kvbench"),
        ({"version": 0}, r"schema version = 0: .*`kvbench trace import`"),
        ({}, r"schema version = None"),
        ({"version": True}, r"schema version = True: .*`kvbench trace import`"),
        ({"version": 1, "block_tokens": 2**32}, r"fact block_tokens = 4294967296: must be .* to 4,294,967,295"),
        ({"version": 1, "tail_rule": "round"}, r"fact tail_rule = 'round': must be one of ceil, floor"),
        ({"version": 1, "id_kind": []}, r"fact id_kind = \[\]: must be one of prefix, content"),
        ({"version": 1, "id_scope": "world"}, r"must be one of file, session, global"),
        ({"version": 1, "block_tokens": 0}, r"fact block_tokens = 0: must be a whole number from 1 to"),
        ({"version": 1, "block_tokens": True}, r"fact block_tokens = True"),
        ({"version": 1, "dense": 1}, r"fact dense = 1: must be true or false"),
        ({"version": 1, "source_name": 3}, r"fact source_name = 3: must be a string"),
        ({"version": 1, "colour": "red"}, r"unknown fact 'colour' in the metadata; known are block_tokens, "),
        ([], r"must be a JSON object"),
    ],
)
def test_metadata_that_version_1_does_not_know_is_refused(said, message):
    with pytest.raises(TraceError, match=message):
        TraceFacts.from_metadata({METADATA_KEY: json.dumps(said).encode()}, "a.arrow")


def test_metadata_that_is_not_json_is_refused():
    with pytest.raises(TraceError, match=r"a: metadata kvbench.trace is not JSON"):
        TraceFacts.from_metadata({METADATA_KEY: b"{"}, "a")


def test_other_types_that_lose_nothing_become_the_types_of_version_1():
    schema = pa.schema(
        [
            ("session_id", pa.dictionary(pa.int32(), pa.string())),
            ("block_ids", pa.large_list(pa.int64())),
            ("input_tokens", pa.int16()),
            ("arrival_ns", pa.uint64()),
            ("model", pa.large_string()),
            ("tenant", pa.null()),
            ("x_note", pa.float64()),
        ]
    )
    normal = normalise_schema(schema, "a")
    assert normal.names == ["arrival_ns", "input_tokens", "block_ids", "session_id", "model", "tenant"]
    assert normal.field("block_ids").type == pa.list_(pa.uint64())
    assert not normal.field("arrival_ns").nullable


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([TOKENS], r"a: column arrival_ns \(int64: .*\) is missing"),
        ([ARRIVAL], r"column input_tokens \(uint32: .*\) is missing"),
        ([ARRIVAL, TOKENS, ("hash_ids", pa.int64())], r"unknown column 'hash_ids'; known are arrival_ns, .*x_"),
        ([ARRIVAL, TOKENS, TOKENS], r"column input_tokens stands twice"),
        ([("arrival_ns", pa.float64()), TOKENS], r"column arrival_ns has type double; it must be int64"),
        ([ARRIVAL, TOKENS, ("block_ids", pa.uint64())], r"block_ids has type uint64; it must be list<item: uint64>"),
        ([ARRIVAL, TOKENS, ("block_ids", pa.list_(pa.string()))], r"column block_ids has type list<item: string>"),
        ([ARRIVAL, TOKENS, ("tenant", pa.int64())], r"column tenant has type int64; it must be string"),
        ([("arrival_ns", pa.null()), TOKENS], r"column arrival_ns has type null"),
        (
            [ARRIVAL, TOKENS, ("block_ids", pa.list_(pa.uint64())), ("token_ids", pa.list_(pa.uint32()))],
            r"two id columns, block_ids and token_ids",
        ),
    ],
)
def test_a_column_that_does_not_belong_is_named(fields, message):
    with pytest.raises(TraceError, match=message):
        normalise_schema(pa.schema(fields), "a")
