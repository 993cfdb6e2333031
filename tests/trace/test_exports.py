"""Exports: what comes back is what went out, and what a form cannot carry is told or refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.config import parse_part
from kvbench.errors import ConfigError, OutputError, TraceError
from kvbench.plugins import load_registry
from kvbench.specs import TraceFormatSpec
from kvbench.trace import TraceFacts, TraceWriter, import_trace, open_trace
from kvbench.trace.exports import export_trace, forms
from kvbench.trace.exports.oracle import RECORD
from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.schema import COLUMNS, make_schema

BLOCK = 16
IDS = st.integers(0, 2**64 - 1)


@st.composite
def mooncake_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of one file: all with ids or none, times in whole or broken milliseconds, some in sessions."""
    with_ids = draw(st.booleans())
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        tokens = draw(st.integers(1, 100))
        row: dict[str, Any] = {"timestamp": draw(st.integers(0, 10**9)), "input_length": tokens}
        if draw(st.booleans()):
            row["timestamp"] += draw(st.integers(0, 999_999)) / 10**6
        if with_ids:
            count = -(-tokens // BLOCK)
            row["hash_ids"] = draw(st.lists(IDS, min_size=count, max_size=count, unique=True))
        if draw(st.booleans()):
            row["output_length"] = draw(st.integers(0, 2**32 - 1))
        if draw(st.booleans()):
            row |= {"session_id": draw(st.sampled_from(["a", "é,\"\n'", " b "])), "delay": draw(st.integers(0, 10**6))}
        if draw(st.booleans()):
            row |= {"request_id": draw(st.text(min_size=1, max_size=5)), "priority": draw(st.integers(-9, 9))}
        rows.append(row)
    return sorted(rows, key=lambda row: row["timestamp"])


def table_of(path: Path) -> pa.Table:
    return pa.Table.from_batches(list(open_trace(path).batches()))


def imported(rows: list[dict[str, Any]], folder: Path, **settings: Any) -> Path:
    source, path = folder / "rows.jsonl", folder / "rows.arrow"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_trace(source, path, format=MooncakeFormat(), block_tokens=BLOCK, keep_ids=True, **settings)
    return path


def read_back(path: Path, output: Path, note: str = "") -> pa.Table:
    if not note:
        import_trace(path, output, format=MooncakeFormat(), block_tokens=BLOCK, keep_ids=True)
        return table_of(output)
    name, params = parse_part(note.split("--format ")[1], "--format")
    spec = load_registry(autoload=False).get(TraceFormatSpec, name)
    import_trace(path, output, format=spec.load()(**spec.parse_params(params)), keep_ids=True)
    return table_of(output)


@settings(max_examples=25, deadline=None)
@given(mooncake_rows())
def test_mooncake_csv_parquet_and_arrow_give_back_the_table_that_was_exported(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = imported(rows, folder)
        table = table_of(path)
        export_trace(path, folder / "t.jsonl", to="mooncake")
        assert read_back(folder / "t.jsonl", folder / "again.arrow").equals(table)
        note = export_trace(path, folder / "t.csv", to="csv").notes[0]
        assert read_back(folder / "t.csv", folder / "csv.arrow", note).equals(table)
        for suffix in ("parquet", "arrow"):
            export_trace(path, folder / f"t.{suffix}", to=suffix)
            assert table_of(folder / f"t.{suffix}").equals(table)
        export_trace(path, folder / "ai.jsonl", to="aiperf")
        kept = ["arrival_ns", "input_tokens", "output_tokens", "block_ids", "original_ids"]
        expected = table.select([column for column in table.column_names if column in kept])
        assert read_back(folder / "ai.jsonl", folder / "ai.arrow").equals(expected)


def test_the_conversation_trace_is_exported_as_it_was(shared: Path, tmp_path: Path) -> None:
    source = shared / "traces/mooncake/synthetic_trace.jsonl.gz"
    import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat(), keep_ids=True)
    report = export_trace(tmp_path / "t.arrow", tmp_path / "t.jsonl", to="mooncake")
    assert (report.rows, report.notes) == (3_993, [])
    import gzip

    with gzip.open(source, "rt") as lines, (tmp_path / "t.jsonl").open() as again:
        assert all(json.loads(one) == json.loads(other) for one, other in zip(lines, again, strict=True))


def written(path: Path, facts: TraceFacts, **columns: Any) -> Path:
    kinds = {column.name: column.type for column in COLUMNS}
    names = {"arrival_ns", "input_tokens", *columns}
    rows = len(next(iter(columns.values())))
    values = {"arrival_ns": list(range(rows)), "input_tokens": [BLOCK] * rows} | columns
    batch = pa.RecordBatch.from_pydict(
        {f.name: pa.array(values[f.name], kinds[f.name]) for f in make_schema(names)}, schema=make_schema(names)
    )
    with TraceWriter(path, batch.schema, facts) as writer:
        writer.write(batch)
    return path


def test_what_a_form_does_not_carry_is_told(tmp_path: Path) -> None:
    facts = TraceFacts(block_tokens=BLOCK)
    path = written(tmp_path / "t.arrow", facts, block_ids=[[1], [2]], model=["a", None], session_id=["s", "s"])
    notes = export_trace(path, tmp_path / "t.jsonl", to="mooncake").notes
    assert any("read it with --block-tokens 16" in note for note in notes)
    assert "not carried by mooncake: model" in notes
    assert "not carried by aiperf: session_id, model" in export_trace(path, tmp_path / "a.jsonl", to="aiperf").notes


REFUSED = {
    "floor": (TraceFacts(block_tokens=BLOCK, tail_rule="floor"), "no ids for partial last blocks"),
    "content": (TraceFacts(block_tokens=BLOCK, id_kind="content"), "stand for contents of blocks"),
    "session": (TraceFacts(block_tokens=BLOCK, id_scope="session"), "in their session only"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_form_that_would_make_another_trace_refuses_and_leaves_nothing(tmp_path: Path, case: str) -> None:
    facts, message = REFUSED[case]
    path = written(tmp_path / "t.arrow", facts, block_ids=[[1], [2]])
    with pytest.raises(TraceError, match=message):
        export_trace(path, tmp_path / "t.jsonl", to="mooncake")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.arrow"]


def test_values_that_a_form_cannot_hold_are_named_with_their_row(tmp_path: Path) -> None:
    path = written(tmp_path / "t.arrow", TraceFacts(), output_tokens=[1, 2], arrival_ns=[0, 2**60 + 1])
    with pytest.raises(TraceError, match=r"t\.arrow, row 2, arrival_ns = 1152921504606846977: milliseconds"):
        export_trace(path, tmp_path / "t.jsonl", to="mooncake")
    path = written(tmp_path / "u.arrow", TraceFacts(), session_id=["a", "a"], turn=[0, 2])
    with pytest.raises(TraceError, match=r"u\.arrow, row 2, turn = 2: readers of Mooncake count"):
        export_trace(path, tmp_path / "t.jsonl", to="mooncake")
    path = written(tmp_path / "v.arrow", TraceFacts(), token_ids=[[1] * BLOCK])
    for form in ("mooncake", "libcachesim"):
        with pytest.raises(TraceError, match=r"v\.arrow: has (token ids|no block ids)"):
            export_trace(path, tmp_path / "t.jsonl", to=form)


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.arrow", TraceFacts(), output_tokens=[1])
    with pytest.raises(ConfigError, match="unknown form 'mooncak'; did you mean 'mooncake'"):
        export_trace(path, tmp_path / "x", to="mooncak")
    with pytest.raises(OutputError, match=r"give it a name that ends in \.parquet"):
        export_trace(path, tmp_path / "x.csv", to="parquet")
    with pytest.raises(OutputError, match="is the trace that is exported"):
        export_trace(path, path, to="arrow", force=True)


@given(st.lists(st.lists(st.integers(0, 8), max_size=6, unique=True), min_size=1, max_size=30), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_an_oracle_knows_the_next_access_of_each_block(rows: list[list[int]], batch_ids: int) -> None:
    """Accesses count from 1, as in the files of libCacheSim; ids have 64 bits; batches do not matter."""
    ids = [[2**64 - 1 - id for id in row] for row in rows]
    flat = [id for row in ids for id in row]
    wanted = [next((at + 1 for at in range(i + 1, len(flat)) if flat[at] == id), -1) for i, id in enumerate(flat)]
    table = pa.table(
        {
            "arrival_ns": pa.array([at * 10**9 for at in range(len(ids))]),
            "input_tokens": pa.array([max(1, len(row)) for row in ids], pa.uint32()),
            "block_ids": pa.array(ids, pa.list_(pa.uint64())),
        }
    )
    trace = open_trace(table, block_tokens=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.oracleGeneral")
        forms()["libcachesim"].write(trace, iter(table.to_batches(max_chunksize=batch_ids)), path)
        records = np.fromfile(path, RECORD)
    assert records["object"].tolist() == flat
    assert records["next"].tolist() == wanted
    assert records["time_s"].tolist() == [at for at, row in enumerate(ids) for _ in row]
