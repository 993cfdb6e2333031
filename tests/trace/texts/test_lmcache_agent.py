"""LMCache agent traces: what is read, and the measured reuse of the three real sets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.lmcache_agent import LMCacheAgentFormat
from kvbench.trace.formats.text import Lines
from kvbench.trace.schema import TraceFacts

ROW = {"timestamp": 1_760_995_991_633_938, "input": "user: hello", "output": "hi", "session_id": "s"}


@pytest.mark.parametrize(
    ("name", "rows", "steps_back", "empty_inputs", "empty_outputs", "hit", "asked", "mean"),
    [
        ("miniswe", 402, 115, 0, 0, 35_180, 37_580, 0.9048),
        ("magagent", 746, 60, 53, 0, 18_892, 22_718, 0.8425),
        ("taubench", 471, 134, 0, 283, 838, 980, 0.8244),
    ],
)
def test_a_real_set_has_the_measured_rows_and_reuse(
    lmcache, name, rows, steps_back, empty_inputs, empty_outputs, hit, asked, mean
):
    """Prefix hits inside each session on whole blocks of 256 characters, cache infinite, rows as in the files."""
    format = LMCacheAgentFormat(characters_per_token=1)
    files = [list(format.read(Lines(path), ReadLog())) for path in sorted((lmcache / name).glob("*.jsonl"))]
    times = [pa.Table.from_batches(file)["arrival_ns"].to_numpy() for file in files if file]
    assert sum(int((np.diff(file) < 0).sum()) for file in times) == steps_back
    table = pa.Table.from_batches([batch for file in files for batch in file])
    assert table.num_rows == rows
    assert table["input_tokens"].to_pylist().count(0) == empty_inputs
    assert table["output_tokens"].to_pylist().count(0) == empty_outputs
    # A tenant's blocks are its own. The measured means are those of the order in the files.
    table = table.set_column(0, "arrival_ns", pa.array(range(rows), pa.int64()))
    table = table.append_column("tenant", table["session_id"]).replace_schema_metadata(TraceFacts().to_metadata())
    result = kvbench.replay(table, block_tokens=256, on_error="skip", keep_requests=True)
    assert (result.summary["blocks"]["hit"], result.summary["blocks"]["full"]) == (hit, asked)
    full = result.requests["input_tokens"].to_numpy() // 256
    ratios = result.requests["hit_blocks"].to_numpy()[full > 0] / full[full > 0]
    assert ratios.mean() == pytest.approx(mean, abs=5e-5)


def test_A22_the_archive_is_imported_whole_but_for_the_rows_without_a_prompt(shared, tmp_path):
    """1,619 rows of 70 sessions, one of them empty; 53 of magagent have no input."""
    source = shared / "traces/lmcache-agent/lmcache_agent_traces.tar.gz"
    with pytest.raises(TraceError, match=r"row 4, input_tokens = 0: a request must have at least one input token"):
        import_trace(source, tmp_path / "l.arrow", format=LMCacheAgentFormat())
    report = import_trace(source, tmp_path / "l.arrow", format=LMCacheAgentFormat(), on_error="skip")
    assert (report.rows, report.skipped) == (402 + 746 + 471 - 53, 53)
    assert report.notes[1].startswith("no tokenizer was used: a token is 4 bytes of text")


def test_an_import_counts_times_from_the_first_row_and_says_which_rule_made_the_tokens(tmp_path):
    second = ROW | {"timestamp": ROW["timestamp"] - 1500, "output": ""}
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(str(row).replace("'", '"') for row in (ROW, second)))
    report = import_trace(path, tmp_path / "s.arrow", format=LMCacheAgentFormat(bytes_per_token=2))
    trace = open_trace(tmp_path / "s.arrow")
    table = pa.Table.from_batches(list(trace.batches()))
    assert table["arrival_ns"].to_pylist() == [0, 1_500_000]
    assert table["turn"].to_pylist() == [0, 1]
    assert table["output_tokens"].to_pylist() == [0, 1]
    assert table["input_tokens"].to_pylist() == [6, 6]
    assert "think_time_ns" not in table.schema.names
    assert trace.facts.source_format == "lmcache-agent,bytes_per_token=2"
    assert any("a token is 2 bytes of text" in note for note in report.notes)
    assert any("pauses between the requests of a session are unknown" in note for note in report.notes)


def test_the_agentic_set_has_messages_and_pauses(read):
    row = {"session_id": 7, "model": "m", "input": [{"role": "user", "content": "a"}], "output_length": 5}
    rows = [row | {"pre_gap": 0.5}, row | {"pre_gap": 2, "output_length": 6}]
    log = ReadLog()
    found = read(LMCacheAgentFormat(), *rows, log=log)
    assert [row["arrival_ns"] for row in found] == [0, 2_000_000_000]
    assert [row["think_time_ns"] for row in found] == [None, 2_000_000_000]
    assert [(row["output_tokens"], row["output_token_ids"]) for row in found] == [(5, None), (6, None)]
    assert log.estimated_arrivals == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timestamp": None}, "timestamp = None: must be a number"),
        ({"timestamp": -1}, "timestamp = -1: must not be negative"),
        ({"pre_gap": 1e30, "input": [{"role": "user"}]}, "is too large"),
        ({"timestamp": 1_760_995_991_633_938_000}, "is no time in us since 1970; say which unit"),
        ({"input": None}, "input = None: is missing; it must be text"),
        ({"output": 5}, "output = 5: must be text"),
        ({"session_id": [1]}, r"session_id = \[1\]: must be text"),
    ],
)
def test_a_bad_row_is_told_and_can_be_left_out(read, change, message):
    with pytest.raises(TraceError, match=f"row 2, .*{message}"):
        read(LMCacheAgentFormat(), ROW, ROW | change)
    log = ReadLog(skip=True)
    assert len(read(LMCacheAgentFormat(), ROW, ROW | change, "[1]", "{", ROW, log=log)) == 2
    assert log.rejected.count == 3
