"""TraceLab's rounds: made ids, both forms of the files, and the planned reuse that its authors print."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.fields import MAX_MADE_IDS
from kvbench.trace.formats.text import Lines
from kvbench.trace.formats.tracelab import TraceLabFormat

HEADER = "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms"


def read(path, format=None, log=None):
    batches = list((format or TraceLabFormat()).read(Lines(path), log or ReadLog()))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def table(path, *rows, header=HEADER):
    path.write_text("\n".join([header, *rows]))
    return path


def test_planned_reuse_is_what_the_authors_print(shared, tmp_path):
    """Of blocks of one token all that a round keeps are there before it, from prompts and answers."""
    source = shared / "traces/tracelab/multi_session_large.csv"
    report = import_trace(source, tmp_path / "t.arrow", format=TraceLabFormat(block_tokens=1))
    assert report.rows == 303
    rows = pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).to_pylist()
    assert len({row["session_id"] for row in rows}) == 48
    assert sum(row["output_tokens"] for row in rows) == 58_678
    known, kept, asked = set(), 0, 0
    for row in rows:
        kept += sum(block in known for block in row["block_ids"])
        asked += len(row["block_ids"])
        known.update(row["block_ids"], row["output_block_ids"])
    assert (kept, asked) == (939_365, 939_365 + 211_032)
    assert kept / asked == 0.8165572406743064
    # The last token of an answer has no KV yet, in each of the 255 rounds that follow another.
    replayed = kvbench.replay(tmp_path / "t.arrow", store_output=True)
    assert replayed.summary["blocks"]["hit"] == 939_365 - 255


def test_a_round_keeps_whole_blocks_of_its_context(tmp_path):
    file = table(tmp_path / "t.csv", "s,7,0,0,20,12,500", "s,7,1,32,9,30,250", "s,7,2,23,10,1,0")
    rows = read(file, TraceLabFormat(block_tokens=8))
    assert [row["block_ids"] for row in rows] == [[0, 1], [0, 1, 2, 3, 4], [0, 1, 8, 9]]
    assert [row["output_block_ids"] for row in rows] == [[2, 3], [5, 6, 7], []]
    assert [row["arrival_ns"] / 1e6 for row in rows] == [7, 507, 757]
    assert [row["think_time_ns"] for row in rows] == [None, 500_000_000, 250_000_000]
    assert [row["turn"] for row in rows] == [0, 1, 2]


def test_B11_a_context_that_was_cut_hits_only_what_is_left_of_it(shared, tmp_path):
    """The last round of the example falls back from 57,378 tokens to 48,060 of them."""
    source = shared / "traces/tracelab/session_workload_example.csv"
    rows = read(source)
    assert len(rows) == 11
    assert {row["arrival_ns"] for row in rows[:1]} == {0}
    before, last = rows[-2]["block_ids"], rows[-1]["block_ids"]
    same = [a == b for a, b in zip(before, last, strict=False)]
    assert same.index(False) == sum(same) == 48_060 // 16


def test_columns_may_come_in_another_order_and_under_another_name(tmp_path):
    usual = read(table(tmp_path / "a.csv", "s,5,0,0,40,3,9", "s,5,1,43,8,1,0"))
    header = "id,input_len,output_len,arrival_time,round_idx,prefix_len,tool_wait_after_ms,slo"
    log = ReadLog()
    other = read(table(tmp_path / "b.csv", "s,40,3,5,0,0,9,x", "s,8,1,5,1,43,0,x", header=header), log=log)
    assert other == usual
    assert log.ignored_fields == {"slo": 2}


def test_rounds_of_recorded_sessions_have_their_times_counts_and_names(shared, tmp_path):
    source = shared / "traces/tracelab/round_trace.jsonl"
    import_trace(source, tmp_path / "t.arrow", format=TraceLabFormat())
    rows = pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).to_pylist()
    sums = {}
    for row in rows:
        count, tokens, output = sums.get(row["session_id"].split(":")[0], (0, 0, 0))
        total = (count + 1, tokens + row["input_tokens"], output + row["output_tokens"])
        sums[row["session_id"].split(":")[0]] = total
    assert sums == {"claude": (10, 418_193, 9_423), "codex": (9, 95_819, 1_912)}
    claude = [row for row in rows if row["session_id"].startswith("claude")]
    assert claude[0]["arrival_ns"] == claude[0]["turn"] == 0 or rows[0]["arrival_ns"] == 0
    # 05:40:50.938, when the second tool had answered, after 05:40:31.647, the last call of the round before.
    assert claude[1]["arrival_ns"] - claude[0]["arrival_ns"] == 30_787_000_000
    assert claude[1]["think_time_ns"] == 19_291_000_000
    assert (claude[1]["model"], claude[1]["type"]) == ("claude-opus-4-8", "tool_result")


def test_two_tables_have_their_own_sessions_and_two_logs_share_theirs(shared, tmp_path):
    format = TraceLabFormat()
    file = table(tmp_path / "a.csv", "0,5,0,0,40,3,9")
    assert [read(file, format)[0]["session_id"] for _ in range(2)] == ["0", "2/0"]
    lines = (shared / "traces/tracelab/round_trace.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "whole.jsonl").write_text("".join(lines[:8]))
    (tmp_path / "first.jsonl").write_text("".join(lines[:4]))
    (tmp_path / "second.jsonl").write_text("".join(lines[4:8]))
    parts = TraceLabFormat()
    both = read(tmp_path / "first.jsonl", parts) + read(tmp_path / "second.jsonl", parts)
    again = table(tmp_path / "b.csv", "0,5,0,0,40,3,9")
    import_trace([file, again], tmp_path / "t.arrow", format=TraceLabFormat())
    assert kvbench.replay(tmp_path / "t.arrow").summary["blocks"]["hit"] == 0
    numbers = {"x_row": 0}
    assert [row | numbers for row in both] == [row | numbers for row in read(tmp_path / "whole.jsonl")]


BAD = {
    "s,5,1,0,x,3,9": "input_len = 'x': must be a whole number",
    "s,5,1,0,-1,3,9": "input_len = '-1': must be a whole number",
    "s,5,1,0,5000000000,3,9": "input_len = 5000000000: must be from 0 to",
    "s,5,1,0,4000000000,3,9": f"input_len = 4000000000: makes 250,000,000 blocks of 16 .* {MAX_MADE_IDS:,} at most",
    "s,5,1,0,1,4000000000,9": "output_len = 4000000001: makes 250,000,000 blocks",
    "s,5,1,0,1,3,inf": "tool_wait_after_ms = inf: must be a finite number",
    "s,5,1,0,1,3,soon": "tool_wait_after_ms = 'soon': must be a number of milliseconds",
    "s,5,0,0,1,3,9": "round = 0: comes after round 0",
    "s,6,1,0,1,3,9": "arrival_time = 6000000: is not that of the session's first round",
    "s,5,1": "line = 's,5,1': has 3 cells; the header has 7",
    's,5,1,0,1,3,"9': "line = .*: is no line of a CSV file",
    ",5,1,0,1,3,9": "session_id = '': is empty",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_round_is_told_and_can_be_left_out(tmp_path, bad):
    file = table(tmp_path / "t.csv", "s,5,0,0,40,3,9", bad, "s,5,2,43,40,3,9")
    with pytest.raises(TraceError, match=rf"^{file}, row 3, {BAD[bad]}"):
        read(file)
    log = ReadLog(skip=True)
    assert [row["x_row"] for row in read(file, log=log)] == [2, 4]
    assert log.rejected.count == 1


def test_a_bad_recorded_round_is_told(shared, tmp_path):
    good = json.loads((shared / "traces/tracelab/round_trace.jsonl").read_text().splitlines()[0])
    for change, message in (
        ({"input_tokens_total": 1}, r"input_tokens_total = 1: is not prefix and new tokens, 32272"),
        ({"timing_events": []}, r"timing_events = \[\]: is empty"),
        ({"timing_events": [{"event_type": "text", "timestamp": "noon"}]}, "timestamp = 'noon': is not a date"),
        ({"timing_events": [{"event_type": "text", "timestamp": "0001-01-01T00:00:00Z"}]}, ".*is not between 1970"),
        ({"round_index": -1}, "round_index = -1: must be from 0"),
    ):
        (tmp_path / "r.jsonl").write_text(json.dumps(good | change))
        with pytest.raises(TraceError, match=rf"row 1, {message}"):
            read(tmp_path / "r.jsonl")


def test_a_table_without_a_column_says_which(tmp_path):
    with pytest.raises(TraceError, match="column session_id is missing; TraceLab's are session_id, prefix_len"):
        read(table(tmp_path / "t.csv", "0,1,1", header="prefix_len,input_len,output_len"))
