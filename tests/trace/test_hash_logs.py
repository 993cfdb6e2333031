"""LMCache's logs of hashes."""

from __future__ import annotations

import json

import foreign
import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import TraceError
from kvbench.trace import import_trace, open_trace

LOOKUP = foreign.LOOKUP | {"chunk_hashes": ["0x1", "0x2"]}


def imported(tmp_path, choice: str, *rows: dict, **params):
    (tmp_path / "log.jsonl").write_bytes(foreign.jsonl(*rows))
    report = import_trace(
        tmp_path / "log.jsonl", tmp_path / "t.arrow", format=foreign.make(choice, **params), keep_ids=True, force=True
    )
    return pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).to_pylist(), report


def test_j02_a_log_of_lookups_is_read_and_hits_what_was_measured(shared, tmp_path):
    source = shared / "golden" / "sample_lookup_hashes.jsonl"
    report = import_trace(source, tmp_path / "t.arrow", format=foreign.make("lmcache-lookup"))
    assert (report.rows, report.distinct_blocks) == (200, 1_528)
    assert any("a chunk takes 33,554,432 bytes" in note for note in report.notes)
    trace = open_trace(tmp_path / "t.arrow")
    assert (trace.facts.block_tokens, trace.facts.tail_rule) == (256, "floor")
    result = kvbench.replay(tmp_path / "t.arrow", capacity=2_000)
    rates = result.summary["rates"]
    assert rates["token"] == 1_448 * 256 / 786_133
    assert rates["block"] == 1_448 / 2_976


def test_ids_are_64_bits_of_the_hash_whatever_it_is_written_as(tmp_path):
    hashes = ["0x" + "0100000000000000" + "00" * 24, -1]
    rows, _ = imported(tmp_path, "lmcache-lookup", LOOKUP | {"chunk_hashes": hashes})
    assert rows[0]["original_ids"] == [1, 2**64 - 1]
    assert (rows[0]["request_id"], rows[0]["model"], rows[0]["arrival_ns"]) == ("a", "m", 0)


def test_a_lookup_shorter_than_a_chunk_has_no_ids(tmp_path):
    rows, _ = imported(tmp_path, "lmcache-lookup", LOOKUP, LOOKUP | {"seq_len": 9, "chunk_hashes": []})
    assert [row["block_ids"] for row in rows] == [[0, 1], []]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seq_len": 800}, r"row 2, block_ids = 2 ids: 800 input tokens in blocks of 256 .* make 3"),
        ({"chunk_size": 128}, "row 2, chunk_size = 128: the rows before have 256, and a trace has one"),
        ({"chunk_size": 0}, "row 2, chunk_size = 0: must be at least 1"),
        ({"chunk_hashes": ["0xg", "0x2"]}, "row 2, chunk_hashes = .*: '0xg' must be a hexadecimal number"),
        ({"chunk_hashes": [2**64, 1]}, "is not a number of 64 bits"),
        ({"chunk_hashes": None}, "row 2, chunk_hashes = None: is missing"),
        ({"timestamp": "soon"}, "row 2, timestamp = 'soon': must be a number"),
    ],
)
def test_a_bad_lookup_is_told_with_its_place(tmp_path, change, message):
    with pytest.raises(TraceError, match=message):
        imported(tmp_path, "lmcache-lookup", LOOKUP, LOOKUP | change)


def test_a_log_of_chunk_hashes_takes_prompts_to_fill_their_last_chunk(tmp_path):
    row = {"timestamp": 3.5, "lookup_id": "l", "chunk_hashes": ["0x1", "0xffffffffffffffff", "3"]}
    rows, report = imported(tmp_path, "lmcache-chunk-hashes", row, row | {"timestamp": 4}, chunk_tokens=64)
    assert [(row["arrival_ns"], row["input_tokens"]) for row in rows] == [(0, 192), (500_000_000, 192)]
    assert rows[0]["original_ids"] == [1, 2**64 - 1, 3]
    assert any("has no lengths" in note for note in report.notes)


def test_a_first_line_longer_than_what_is_looked_at_is_still_known():
    line = json.dumps(LOOKUP | {"chunk_hashes": foreign.HASHES * 1000}).encode()
    assert foreign.make("lmcache-lookup").sniff(line[:65_536], "log")
    assert not foreign.make("lmcache-chunk-hashes").sniff(line[:65_536], "log")


def test_rotated_logs_share_their_hashes(tmp_path):
    for name, time in (("b.jsonl", 5), ("a.jsonl", 9)):
        (tmp_path / name).write_bytes(foreign.jsonl(LOOKUP | {"timestamp": time, "request_id": name}))
    report = import_trace(tmp_path / "*.jsonl", tmp_path / "t.arrow", format=foreign.make("lmcache-lookup"))
    rows = pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).to_pylist()
    assert [(row["arrival_ns"], row["request_id"]) for row in rows] == [(0, "b.jsonl"), (4 * 10**9, "a.jsonl")]
    assert report.distinct_blocks == 2
