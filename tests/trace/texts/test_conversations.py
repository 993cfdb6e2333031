"""ShareGPT and WildChat: a request for each answer."""

from __future__ import annotations

import json
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.errors import TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats import documents as documents_module
from kvbench.trace.formats.documents import documents
from kvbench.trace.formats.sharegpt import ShareGPTFormat
from kvbench.trace.formats.text import Lines
from kvbench.trace.formats.wildchat import WildChatFormat

SHARED = {
    "id": "a",
    "conversations": [
        {"from": "gpt", "value": "an answer to nothing"},
        {"from": "human", "value": "q1"},
        {"from": "gpt", "value": "a1"},
        {"from": "human", "value": "q2"},
        {"from": "gpt", "value": "a2"},
    ],
}
WILD = {
    "conversation_hash": "h",
    "model": "gpt-4",
    "timestamp": "2023-04-09T00:02:53+00:00",
    "hashed_ip": "x",
    "conversation": [
        {"role": "user", "content": "q1"},
        {"role": "assistant", "content": "a1"},
        {"role": "user", "content": "q2"},
        {"role": "assistant", "content": "a2", "timestamp": "2023-04-09T00:05:00+00:00"},
        {"role": "user", "content": "q3"},
        {"role": "assistant", "content": "a3"},
    ],
}


@pytest.mark.parametrize("layout", ["list", "lines", "indented"])
def test_each_answer_of_sharegpt_is_a_request_at_a_made_up_pace(read, layout):
    both = [SHARED, SHARED | {"id": "b"}]
    source = {"list": [both], "lines": both, "indented": [json.dumps(both, indent=2)]}[layout]
    log = ReadLog()
    rows = read(ShareGPTFormat(conversation_s=2.0, turn_s=0.5), *source, log=log)
    assert [(row["session_id"], row["turn"]) for row in rows] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert [row["arrival_ns"] / 1e9 for row in rows] == [0, 0.5, 2, 2.5]
    first = rows[0]["token_ids"] + rows[0]["output_token_ids"]
    assert rows[1]["token_ids"][: len(first)] == first
    assert "the files have no times" in log.carried["note on arrivals"]


def test_wildchat_takes_the_times_there_are_and_no_tenant(read):
    log = ReadLog()
    rows = read(WildChatFormat(turn_s=10), [WILD], log=log)
    assert [row["arrival_ns"] // 10**9 - 1_680_998_573 for row in rows] == [0, 127, 137]
    assert [(row["session_id"], row["model"]) for row in rows] == [("h", "gpt-4")] * 3
    assert log.ignored_fields == {"hashed_ip": 3}
    assert log.estimated_arrivals == 1


def test_wildchat_in_parquet_is_what_it_is_as_json(tmp_path, read):
    said = datetime.fromisoformat
    messages = [
        message | {"timestamp": said(message["timestamp"]) if "timestamp" in message else None}
        for message in WILD["conversation"]
    ]
    row = WILD | {"timestamp": said(WILD["timestamp"]), "conversation": messages}
    pq.write_table(pa.Table.from_pylist([row, row | {"conversation_hash": "i"}]), tmp_path / "wild.parquet")
    import_trace(tmp_path / "wild.parquet", tmp_path / "p.arrow", format=WildChatFormat(turn_s=10))
    (tmp_path / "wild.json").write_text(json.dumps([WILD, WILD | {"conversation_hash": "i"}]))
    import_trace(tmp_path / "wild.json", tmp_path / "j.arrow", format=WildChatFormat(turn_s=10))
    tables = [list(open_trace(tmp_path / name).batches()) for name in ("p.arrow", "j.arrow")]
    assert tables[0] == tables[1]
    assert sum(batch.num_rows for batch in tables[0]) == 6


def test_a_conversation_that_cannot_be_read_is_told_by_its_place_in_the_list(read):
    bad = SHARED | {"conversations": [{"from": 1, "value": "x"}]}
    with pytest.raises(TraceError, match=r"row 2, role = 1: must be text"):
        read(ShareGPTFormat(), [SHARED, bad])
    log = ReadLog(skip=True)
    assert len(read(ShareGPTFormat(), [SHARED, bad, 5, SHARED], log=log)) == 4
    assert log.rejected.count == 2
    with pytest.raises(TraceError, match=r"conversation = 5: must be a list of messages"):
        read(WildChatFormat(), WILD | {"conversation": 5})


def test_a_long_list_is_read_in_pieces_whatever_their_size(tmp_path, monkeypatch):
    wanted = [{"id": i, "text": 'é ]},"\\' * i} for i in range(40)]
    path = tmp_path / "list.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(wanted, ensure_ascii=False).encode())
    for size in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(documents_module, "_CHUNK_BYTES", size)
        assert [document for _, document in documents(Lines(path), ReadLog())] == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"id": 1}, {"id": ]', "row 2: is not valid JSON: Expecting value, and where the next row starts"),
        ('[{"id": 1}, {"id": 2', "row 2: is not valid JSON"),
        ('[{"id": NaN}]', "row 1: is not valid JSON: NaN is no number"),
        ("[" + '{"a":' * 100_000, "row 1: is nested too deeply"),
        ('[{"id": "\udcff"}]', "is not UTF-8"),
    ],
)
def test_damage_in_a_list_is_one_error(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TraceError, match=message):
        list(documents(Lines(path), ReadLog()))


def test_a_value_that_never_ends_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(documents_module, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(documents_module, "MAX_DOCUMENT_CHARACTERS", 1000)
    path = tmp_path / "long.json"
    path.write_text('[{"id": "' + "x" * 100_000)
    lines = Lines(path)
    with pytest.raises(TraceError, match="row 1: is not valid JSON"):
        list(documents(lines, ReadLog()))
    assert lines.digest is None


def test_names_that_are_no_text_of_arrow_are_kept_readable(read):
    row = read(ShareGPTFormat(), '[{"id": "a\\ud800", "conversations": [{"from": "human", "value": "\\ud800"}, '
                                 '{"from": "gpt", "value": "x"}]}]')[0]  # fmt: skip
    assert row["session_id"] == "a\\ud800"
    assert pa.array([row["session_id"]]).type == pa.string()
