"""Mooncake JSONL in all its variants: what is read, and what is said of what cannot be."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import KvbenchError, TraceError
from kvbench.trace import import_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats import text as text_module
from kvbench.trace.formats.mooncake import MooncakeFormat, Sessions
from kvbench.trace.formats.mooncake_delta import MooncakeDeltaFormat
from kvbench.trace.formats.mooncake_line import IGNORED_FIELDS
from kvbench.trace.formats.mooncake_plain import PlainReader
from kvbench.trace.formats.text import Lines
from kvbench.trace.schema import COLUMN_BY_NAME

GOOD = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}


def lines_of(path, *rows) -> Lines:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return Lines(path)


def plain_batch(chunk: bytes, first: int):
    return PlainReader(Sessions(ReadLog())).batch(chunk, first)


def read(lines: Lines, log: ReadLog | None = None) -> list[dict]:
    batches = MooncakeFormat().read(lines, log or ReadLog())
    return [dict.fromkeys(COLUMN_BY_NAME) | row for batch in batches for row in batch.to_pylist()]


def test_the_four_usual_fields(tmp_path):
    row = read(lines_of(tmp_path / "t.jsonl", GOOD | {"timestamp": 27482}))[0]
    assert (row["arrival_ns"], row["input_tokens"], row["output_tokens"], row["block_ids"]) == (
        27_482_000_000,
        600,
        5,
        [0, 1],
    )
    assert [row[name] for name in ("session_id", "turn", "think_time_ns", "request_id", "priority")] == [None] * 5


def test_other_names_mean_the_same(tmp_path):
    other = {"created_time": 3, "input_tokens": 600, "output_tokens": 5, "hash_ids": [0, 1], "delay_ms": 2}
    usual = GOOD | {"timestamp": 3, "delay": 2}
    rows = read(lines_of(tmp_path / "t.jsonl", other, usual))
    assert rows[0] | {"x_row": 0} == rows[1] | {"x_row": 0}


def test_sessions_priorities_and_answers_are_read(tmp_path):
    extra = {"session_id": 7, "request_id": "r", "priority": -2, "output_token_ids": [1, 2**32 - 1]}
    row = read(lines_of(tmp_path / "t.jsonl", GOOD | extra))[0]
    assert (row["session_id"], row["turn"], row["request_id"], row["priority"]) == ("7", 0, "r", -2)
    assert row["output_token_ids"] == [1, 2**32 - 1]


@pytest.mark.parametrize(
    ("milliseconds", "nanoseconds"),
    [(1.5, 1_500_000), (0.1, 100_000), (1234.567, 1_234_567_000), (2**43, 2**43 * 10**6)],
)
def test_milliseconds_become_whole_nanoseconds(tmp_path, milliseconds, nanoseconds):
    row = read(lines_of(tmp_path / "t.jsonl", GOOD | {"timestamp": milliseconds}))[0]
    assert row["arrival_ns"] == nanoseconds


def test_ids_use_all_64_bits(tmp_path):
    assert read(lines_of(tmp_path / "t.jsonl", GOOD | {"hash_ids": [2**64 - 1]}))[0]["block_ids"] == [2**64 - 1]


def test_what_may_be_missing_is_null(tmp_path):
    row = read(lines_of(tmp_path / "t.jsonl", {"timestamp": 0, "input_length": 5}))[0]
    assert (row["output_tokens"], row["block_ids"]) == (None, None)


def test_a_later_turn_without_a_time_comes_its_delay_after_the_one_before(tmp_path):
    turn = {"input_length": 600, "hash_ids": [0, 1], "session_id": "é"}
    rows = [turn | {"timestamp": 10}, GOOD | {"timestamp": 20}, turn | {"delay": 5.5}, turn | {"delay": 1}]
    log = ReadLog()
    out = read(lines_of(tmp_path / "t.jsonl", *rows), log)
    assert [row["arrival_ns"] for row in out] == [10_000_000, 20_000_000, 15_500_000, 16_500_000]
    assert [row["turn"] for row in out] == [0, None, 1, 2]
    assert [row["think_time_ns"] for row in out] == [None, None, 5_500_000, 1_000_000]
    assert log.estimated_arrivals == 2


def test_fields_that_are_not_used_are_counted(tmp_path):
    log = ReadLog()
    read(
        lines_of(tmp_path / "t.jsonl", GOOD | {name: {"a": [1]} for name in IGNORED_FIELDS}, GOOD | {"type": "x"}), log
    )
    assert log.ignored_fields == dict.fromkeys(IGNORED_FIELDS, 1) | {"type": 2}


BAD = {
    "syntax": ('{"timestamp": 1,', r"line = '\{\"timestamp\": 1,': is not valid JSON: "),
    "nan": ('{"timestamp": NaN, "input_length": 1}', r"line = .*: NaN and Infinity are no numbers"),
    "infinity": ('{"timestamp": -Infinity, "input_length": 1}', r"line = .*: NaN and Infinity are no numbers"),
    "overflow": ('{"timestamp": 1e999, "input_length": 1}', r"timestamp = .*: number out of range"),
    "not utf-8": (
        '{"timestamp": 1, "session_id": "\udcff", "input_length": 1}',
        r"line = .*: is not valid JSON: .*(UTF|utf)-8",
    ),
    "no object": ("[1]", r"line = \[1\]: must be a JSON object"),
    "negative time": (GOOD | {"timestamp": -5}, r"timestamp = -5: must not be negative"),
    "negative delay": (GOOD | {"delay": -0.5}, r"delay = -0.5: must not be negative"),
    "far time": (GOOD | {"timestamp": 1e300}, r"timestamp = 1e\+300: is too large"),
    "time past any float": (GOOD | {"timestamp": 1e305}, r"timestamp = 1e\+305: is too large"),
    "farther time": (GOOD | {"timestamp": 10**400}, r"timestamp = 1000.*: is too large"),
    "farthest time": (
        '{"input_length": 1, "timestamp": ' + "9" * 5000 + "}",
        r"timestamp = .*: integer value out of range",
    ),
    "far delay": (GOOD | {"delay": 10**400}, r"delay = 1000.*: is too large"),
    "nested": (
        '{"timestamp": 1, "input_length": 1, "extra": ' + "[" * 100_000 + "]" * 100_000 + "}",
        r"line = .*: is nested too deeply",
    ),
    "text time": (GOOD | {"timestamp": "1"}, r"timestamp = '1': expected "),
    "no time": ({"input_length": 5}, r"timestamp = None: is missing, and there is no earlier row of the session"),
    "two times": (GOOD | {"created_time": 0}, r"created_time = 0: is another name of timestamp, which is there too"),
    "no length": ({"timestamp": 0}, r"input_length = None: is missing"),
    "negative length": (GOOD | {"input_length": -1}, r"input_length = -1: must be from 0 to 4294967295"),
    "fraction of a token": (GOOD | {"output_length": 1.5}, r"output_length = 1.5: expected `int \| null`, got `float`"),
    "text instead of length": ({"timestamp": 0, "text_input": "hi"}, r"input_length = None: the row has text_input"),
    "messages": ({"timestamp": 0, "messages": []}, r"input_length = None: the row has messages instead"),
    "negative id": (GOOD | {"hash_ids": [0, -1]}, r"hash_ids = -1: must be from 0 to 18446744073709551615"),
    "wide id": (GOOD | {"hash_ids": [2**64]}, r"hash_ids = .*18446744073709551616"),
    "wide token": (GOOD | {"output_token_ids": [2**32]}, r"output_token_ids = 4294967296: must be from 0 to"),
    "wide priority": (GOOD | {"priority": 2**31}, r"priority = 2147483648: must be from -2147483648"),
    "ids are text": (GOOD | {"hash_ids": ["a"]}, r"hash_ids\[0\] = 'a': expected `int`, got `str`"),
    "a field twice": (
        '{"timestamp": 1, "timestamp": 2, "input_length": 5}',
        r"field = 'timestamp': stands twice in the line",
    ),
    "a field twice beside text": (
        '{"timestamp": 1, "session_id": "\\"a", "extra": {"b": 1, "b": 2}, "input_length": 5, "input_length": 5}',
        r"field = 'input_length': stands twice in the line",
    ),
    "unknown request": (
        {"input_length": 5, "wait_for": ["r9"]},
        r"wait_for = 'r9': is the request_id of no row before",
    ),
    "unknown field": (GOOD | {"colour": 1}, r"field = 'colour': is unknown; known are timestamp, created_time, "),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_told_with_its_number_and_can_be_left_out(tmp_path, case):
    row, message = BAD[case]
    path = tmp_path / "bad.jsonl"
    text = "\n".join([json.dumps(GOOD), "", row if isinstance(row, str) else json.dumps(row), json.dumps(GOOD)])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TraceError, match=rf"^{path}, row 3, {message}") as caught:
        read(Lines(path))
    assert "\n" not in str(caught.value)
    log = ReadLog(skip=True)
    assert [row["x_row"] for row in read(Lines(path), log)] == [1, 4]
    assert log.rejected.count == 1


def test_a_later_turn_needs_a_delay_or_a_time(tmp_path):
    turn = {"input_length": 5, "session_id": "a"}
    with pytest.raises(TraceError, match=r"row 2, timestamp = None: is missing, and so is delay"):
        read(lines_of(tmp_path / "t.jsonl", turn | {"timestamp": 1}, turn))
    far = 2**63 // 10**6
    with pytest.raises(TraceError, match=r"row 2, delay = .*: puts the arrival too far off"):
        read(lines_of(tmp_path / "t.jsonl", turn | {"timestamp": far}, turn | {"delay": far}))


@pytest.mark.parametrize(
    ("head", "is_mooncake"),
    [
        (json.dumps(GOOD).encode(), True),
        (b"\n" + json.dumps({"created_time": 1, "input_tokens": 3}).encode() + b"\nrest", True),
        (json.dumps(GOOD).encode()[:-4], True),
        (json.dumps({"timestamp": 0, "text_input": "a"}).encode(), True),
        (json.dumps(GOOD | {"colour": 1}).encode(), True),
        (b"[" * 65_536, False),
        (json.dumps(GOOD | {"chat_id": 1, "turn": 1}).encode(), False),
        (b"TIMESTAMP,ContextTokens\n", False),
        (b"[1]\n", False),
        (b"", False),
    ],
)
def test_a_file_is_recognised_by_its_first_line(head, is_mooncake):
    assert MooncakeFormat().sniff(head, "t") is is_mooncake


@pytest.mark.parametrize("line_end", ["\n", "\r\n", " \r\n\n"])
def test_usual_rows_and_all_others_are_read_alike(tmp_path, line_end):
    """One unusual row sends its chunk through the reader of all JSON, which must find the same in the others."""
    rows = [
        '{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,18446744073709551615]}',
        '{ "hash_ids" : [ 1 , 2 ] , "timestamp" : 1234.5, "input_length" : 600 }',
        '{"timestamp": 3.000001, "input_length": 5, "output_length": null, "hash_ids": [7]}',
        '{"timestamp": 4, "input_length": 5, "hash_ids": null}',
        '{"timestamp": 5, "input_length": 4294967295, "hash_ids": []}',
    ]
    path = tmp_path / "t.jsonl"
    path.write_bytes(line_end.join(rows).encode())
    usual = read(Lines(path))
    path.write_bytes(line_end.join([*rows, '{"timestamp": 6, "input_length": 1, "priority": 1}']).encode())
    assert read(Lines(path))[:-1] == usual
    assert [row["arrival_ns"] for row in usual] == [0, 1_234_500_000, 3_000_001, 4_000_000, 5_000_000]
    assert [row["block_ids"] for row in usual] == [[0, 2**64 - 1], [1, 2], [7], None, []]
    assert plain_batch(path.read_bytes().split(b'{"timestamp": 6')[0], 1) is not None


JSON_LINES = st.lists(
    st.sampled_from(['{"timestamp":', '"input_length"', ":", ",", "{", "}", "[", "]", "1", "007", "-1", "2.5", "null"])
    | st.sampled_from(['"hash_ids":[1,2]', '"output_length":3', '{"timestamp":1,"input_length":5}', " ", "\n", "\r"])
    | st.integers(0, 2**65).map(str),
    max_size=14,
).map("".join)


@given(JSON_LINES)
@settings(max_examples=200, deadline=None)
def test_what_is_taken_for_usual_rows_is_json_with_the_same_values(text):
    batch = plain_batch(text.encode(), 1)
    if batch is None:
        return
    rows = [json.loads(line) for line in text.split("\n") if line.strip(" \r")]
    assert batch.column("block_ids").to_pylist() == [row.get("hash_ids") for row in rows]
    assert batch.column("input_tokens").to_pylist() == [row["input_length"] for row in rows]
    assert batch.column("output_tokens").to_pylist() == [row.get("output_length") for row in rows]
    assert batch.column("arrival_ns").to_pylist() == [round(row["timestamp"] * 10**6) for row in rows]


class WithoutPlainReader(MooncakeFormat):
    _whole_prompts = False


NAMES = st.sampled_from(["a", "b", "é", "", "7", 7])
TURNS = st.fixed_dictionaries(
    {"input_length": st.integers(0, 9)},
    optional={
        "timestamp": st.sampled_from([0, 7, 1.25, 3.000001, 2**43]),
        "delay": st.sampled_from([0, 5, 0.5, None]),
        "session_id": NAMES,
        "request_id": NAMES | st.none(),
        "output_tokens": st.integers(0, 9) | st.none(),
        "hash_ids": st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 10**9), max_size=4) | st.none(),
    },
)
UNUSUAL = st.sampled_from(
    [
        {"session_id": 'qu"ote'},
        {"session_id": 2**65},
        {"session_id": -1},
        {"timestamp": -1},
        {"timestamp": 2**53},
        {"timestamp": 1e300},
        {"delay": -1},
        {"delay": 2**43},
        {"delay_ms": 4},
        {"input_length": 2**32},
        {"output_length": 5},
        {"wait_for": "7"},
        {"priority": 1},
    ]
)


@given(
    st.lists(TURNS, max_size=12), st.none() | st.tuples(UNUSUAL, st.integers(0, 11)), st.booleans(), st.integers(1, 999)
)
@settings(max_examples=300, deadline=None)
def test_turns_of_sessions_are_read_alike_by_the_plain_reader_and_by_that_of_all_json(rows, odd, tight, size):
    """In chunks of any size, so that either reader goes on where the other stopped."""
    rows = [row | (odd[0] if odd is not None and at == odd[1] else {}) for at, row in enumerate(rows)]
    separators = (",", ":") if tight else (", ", ": ")
    text = "\n".join(json.dumps(row, ensure_ascii=False, separators=separators) for row in rows)
    seen = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "CHUNK_BYTES", size)
        path = Path(folder, "t.jsonl")
        path.write_text(text, "utf-8")
        for format in (MooncakeFormat(), WithoutPlainReader()):
            log = ReadLog(skip=True)
            found = [row for batch in format.read(Lines(path), log) for row in batch.to_pylist()]
            full = [dict.fromkeys(COLUMN_BY_NAME) | row for row in found]
            seen.append((full, log.estimated_arrivals, log.rejected.count, log.rejected.examples, log.notes))
    assert seen[0] == seen[1]


def test_an_agentic_row_comes_after_what_it_waits_for_and_its_tools(tmp_path):
    row = {"input_length": 5}
    rows = [
        row | {"timestamp": 10, "request_id": "a", "session_id": "s"},
        row | {"timestamp": 30, "request_id": "b"},
        row | {"request_id": "c", "wait_for": ["a"], "session_id": "s", "delay": 1, "tool_wait_ms": 2.5},
        row | {"request_id": "d", "wait_for": ["a", "b"], "tool_wait_ms": 4},
        row | {"request_id": "e", "wait_for": "d", "timestamp": 50},
    ]
    log = ReadLog()
    out = read(lines_of(tmp_path / "t.jsonl", *rows), log)
    assert [row["arrival_ns"] for row in out] == [10_000_000, 30_000_000, 13_500_000, 34_000_000, 50_000_000]
    assert [row["think_time_ns"] for row in out] == [None, None, 3_500_000, 4_000_000, None]
    assert (log.estimated_arrivals, log.ignored_fields) == (2, {"wait_for": 2})
    assert any("a trace has no such links" in note for note in log.notes)


def test_text_becomes_tokens_where_a_rule_is_given(tmp_path):
    rows = [{"timestamp": 0, "text_input": "abcdefgh"}, {"timestamp": 1, "text_input": "abcdefghij"}]
    lines = lines_of(tmp_path / "t.jsonl", *rows)
    with pytest.raises(TraceError, match=r"text_input instead.* as in --format mooncake,bytes_per_token=4"):
        read(lines)
    log = ReadLog()
    first, second = (row for batch in MooncakeFormat(bytes_per_token=4).read(lines, log) for row in batch.to_pylist())
    assert (first["input_tokens"], second["input_tokens"]) == (2, 3)
    assert second["token_ids"][:2] == first["token_ids"]
    assert any("a token is 4 bytes of text" in note for note in log.notes)


ROWS = (
    b'{"timestamp": 27482, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 2353]}\n'
    b'{"timestamp":1.5,"input_length":5,"session_id":"s","delay":2,"wait_for":["a"],"request_id":"b","hash_ids":[1]}\n'
    b'{"created_time":2,"text_input":"x","session_id":"s","tool_wait_ms":1,"output_token_ids":[1],"extra":{"a":[1]}}\n'
)
PIECES = st.sampled_from([b"9" * 30, b"1e400", b"-", b".5", b"null", b"{", b"[", b'"', b"\n", b"\xff", b"1e305", b"]}"])


@given(st.lists(st.tuples(st.integers(0, len(ROWS)), st.integers(0, 20), PIECES | st.just(b"")), max_size=8))
@settings(max_examples=100, deadline=None)
def test_whatever_the_bytes_only_errors_of_ours_are_raised(changes):
    data = ROWS
    for at, cut, piece in changes:
        data = data[:at] + piece + data[at + cut :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.jsonl")
        path.write_bytes(data)
        for format in (MooncakeFormat(), MooncakeFormat(bytes_per_token=4), MooncakeDeltaFormat(512)):
            with contextlib.suppress(KvbenchError):
                import_trace(path, Path(folder, "t.arrow"), format=format, on_error="skip", force=True)
