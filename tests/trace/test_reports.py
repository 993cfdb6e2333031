"""What users report of trace files, as tests named after their ids: those of section A, B10 and C11 that no
format's own tests have.

The other rows stand beside what they are about, under the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foreign
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from clocked import column, serve

import kvbench
from kvbench.cli.root import root
from kvbench.config import parse_part
from kvbench.errors import KvbenchError, TraceError
from kvbench.plugins import load_registry
from kvbench.results.folding import fold_file
from kvbench.results.inspect import inspect_trace
from kvbench.trace import TraceFacts, import_trace, open_trace
from kvbench.trace.exports import export_trace
from kvbench.trace.importer import ImportReport
from kvbench.trace.synth.docqa import make_docqa

BUILT_IN = load_registry(autoload=False)


def imported(folder: Path, *rows: dict[str, Any], **settings: Any) -> ImportReport:
    """Read rows of Mooncake's form, without times a millisecond apart, into t.arrow."""
    timed = [{"timestamp": at, "output_length": 1} | row for at, row in enumerate(rows)]
    (folder / "t.jsonl").write_bytes(foreign.jsonl(*timed))
    format_ = foreign.make("mooncake")
    return import_trace(folder / "t.jsonl", folder / "t.arrow", format=format_, force=True, **settings)


def prompt(tokens: int, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"input_length": tokens, "hash_ids": ids, **more}


def replayed(source: Path | pa.Table, **settings: Any) -> kvbench.ReplayResult:
    return kvbench.replay(source, registry=BUILT_IN, keep_requests=True, **settings)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_batches(list(open_trace(path).batches())).to_pylist()
    return rows


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(root, ["trace", *map(str, words)], obj=BUILT_IN)


def test_A01_a_row_with_an_id_too_many_is_told_with_its_place_or_left_out_and_fits_another_block_size(
    tmp_path: Path,
) -> None:
    bad, good = prompt(20, [0, 1]), prompt(20, [0])
    wanted = r"t\.jsonl, row 2, block_ids = 2 ids: 20 input tokens in blocks of 512 \(tails counted: ceil\) make 1"
    with pytest.raises(TraceError, match=wanted):
        imported(tmp_path, good, bad, block_tokens=512)
    report = imported(tmp_path, good, bad, block_tokens=512, on_error="skip")
    assert (report.rows, report.skipped) == (1, 1)
    assert imported(tmp_path, bad, block_tokens=15).rows == 1


@pytest.mark.parametrize(("tokens", "ids"), [(1, 1), (512, 1), (513, 2), (1536, 3), (1537, 4), (2048, 4)])
def test_A02_a_prompt_has_an_id_for_each_block_begun(tmp_path: Path, tokens: int, ids: int) -> None:
    assert imported(tmp_path, prompt(tokens, [*range(ids)])).rows == 1
    for other in (ids - 1, ids + 1):
        with pytest.raises(TraceError, match=rf"in blocks of 512 \(tails counted: ceil\) make {ids}"):
            imported(tmp_path, prompt(tokens, [*range(other)]))


def test_A03_the_block_size_given_comes_before_that_of_the_file_and_that_before_the_formats(tmp_path: Path) -> None:
    row = prompt(33, [1, 2, 3])
    with pytest.raises(TraceError, match="in blocks of 512"):
        imported(tmp_path, row)
    imported(tmp_path, row, block_tokens=16)
    assert replayed(tmp_path / "t.arrow").manifest["trace"]["block_tokens"] == 16
    assert replayed(tmp_path / "t.arrow", block_tokens=11).manifest["trace"]["block_tokens"] == 11
    with pytest.raises(TraceError, match="33 input tokens in blocks of 512"):
        replayed(tmp_path / "t.arrow", block_tokens=512)


def test_A04_without_a_block_size_a_trace_is_refused_with_those_that_its_rows_allow(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("tokens,ids\n1024,1 2\n700,3 4\n")
    wanted = r"does not say its block size; give it with --block-tokens \(.* from 512 to 699 with --tail-rule ceil"
    columns = {"input": "tokens", "ids": "ids"}
    with pytest.raises(TraceError, match=wanted):
        import_trace(tmp_path / "t.csv", tmp_path / "t.arrow", format=foreign.make("columns", **columns))
    table = pa.table(
        {
            "arrival_ns": [0, 1],
            "input_tokens": pa.array([1024, 700], pa.uint32()),
            "block_ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.uint64())),
        }
    )
    with pytest.raises(TraceError, match=wanted):
        replayed(table)


@pytest.mark.parametrize(("tails", "most"), [("drop", 512), ("keep", 700)])
def test_A06_an_id_of_two_sizes_is_counted_and_gives_no_more_than_the_prompt_has(
    tmp_path: Path, tails: str, most: int
) -> None:
    imported(tmp_path, prompt(1024, [1, 2]), prompt(700, [1, 2]))
    remarks = inspect_trace(open_trace(tmp_path / "t.arrow"), BUILT_IN)["remarks"]
    assert any(remark.startswith("ids seen at two sizes: 1 (row 2 first)") for remark in remarks)
    assert column(replayed(tmp_path / "t.arrow", tails=tails), "hit_tokens") == [0, most]


def documents(seed: int = 0, **params: Any) -> set[tuple[int, ...]]:
    """The texts of the documents of a made trace, as token ids."""
    made = make_docqa(seed, ids="token", num_documents=5, system_tokens=0, question_tokens=1, **params)
    prompts = pa.Table.from_batches(made.batches(), made.schema)["token_ids"].to_pylist()
    return {tuple(each[: params["document_tokens"]]) for each in prompts}


def test_A07_the_tokens_of_a_text_depend_on_the_seed_and_its_name_and_a_short_use_begins_a_long_one() -> None:
    long, short = documents(document_tokens=64), documents(document_tokens=21)
    assert len(long) == len(short) == 5
    assert {text[:21] for text in long} == short
    assert documents(document_tokens=64, order="random", questions_per_document=9) == long
    assert not documents(1, document_tokens=64) & long


def test_A09_a_million_ids_under_a_namespace_are_a_million_first_blocks() -> None:
    """Ids over all 64 bits; mixing them with a namespace is one to one."""
    count = 10**6
    ids = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    table = pa.table(
        {
            "arrival_ns": pa.array(np.arange(count)),
            "input_tokens": pa.array(np.ones(count, np.uint32)),
            "block_ids": pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), pa.array(ids)),
            "tenant": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["a"]).cast(pa.string()),
        }
    ).replace_schema_metadata(TraceFacts(block_tokens=1).to_metadata())
    blocks = kvbench.replay(table, registry=BUILT_IN, belady="off").summary["blocks"]
    assert (blocks["distinct"], blocks["hit"]) == (count, 0)


def test_A21_rows_out_of_order_are_sorted_and_counted_or_refused_where_the_order_is_strict(tmp_path: Path) -> None:
    rows = [prompt(512, [at], timestamp=at) for at in (3, 1, 2)]
    report = imported(tmp_path, *rows)
    assert [row["arrival_ns"] // 1_000_000 for row in rows_of(tmp_path / "t.arrow")] == [1, 2, 3]
    assert report.decreasing_steps == 1
    with pytest.raises(TraceError, match=r"t\.jsonl, row 2, arrival_ns = 1000000: is before the previous row's"):
        imported(tmp_path, *rows, strict_order=True)


def test_A28_whole_prompts_are_read_as_such_and_as_deltas_only_by_name_and_with_a_warning(tmp_path: Path) -> None:
    rows = [prompt(8, [1, 2], session_id="s"), prompt(16, [1, 2, 3, 4], session_id="s")]
    assert imported(tmp_path, *rows, block_tokens=4).notes == []
    result = replayed(tmp_path / "t.arrow")
    assert result.summary["tokens"]["input"] == 24
    assert column(result, "hit_blocks") == [0, 2]
    deltas = foreign.make("mooncake-delta", block_tokens=4)
    report = import_trace(tmp_path / "t.jsonl", tmp_path / "d.arrow", format=deltas)
    assert any("rows begin with all ids of the turn before" in note for note in report.notes)


def test_A29_a_trace_written_as_csv_and_read_again_hits_the_same(tmp_path: Path, sample_path: Path) -> None:
    note = export_trace(sample_path, tmp_path / "t.csv", to="csv").notes[0]
    name, params = parse_part(note.split("--format ")[1], "--format")
    import_trace(tmp_path / "t.csv", tmp_path / "t.arrow", format=foreign.make(name, **params))
    before, after = (replayed(path, capacity=500) for path in (sample_path, tmp_path / "t.arrow"))
    assert column(after, "hit_blocks") == column(before, "hit_blocks")
    assert sum(column(after, "hit_blocks")) > 0
    without_ids = foreign.make("columns", input="input_tokens", ids="prefix_group", block_tokens=64)
    with pytest.raises(KvbenchError, match="prefix_group"):
        import_trace(tmp_path / "t.csv", tmp_path / "u.arrow", format=without_ids)


@pytest.mark.parametrize(
    ("version", "advice"), [(0, "make it anew with `kvbench trace import`"), (2, "update kvbench")]
)
def test_A29_another_version_of_the_schema_is_refused_with_the_way_out(version: int, advice: str) -> None:
    table = pa.table({"arrival_ns": [0], "input_tokens": pa.array([1], pa.uint32())})
    with pytest.raises(TraceError, match=f"schema version = {version}: .*{advice}"):
        open_trace(table.replace_schema_metadata(TraceFacts(version=version).to_metadata()))


def test_A32_the_input_tokens_of_a_replay_are_those_of_its_rows(tmp_path: Path) -> None:
    lengths = [1, 511, 512, 513, 4097]
    imported(tmp_path, *(prompt(length, [*range(-(-length // 512))]) for length in lengths))
    assert replayed(tmp_path / "t.arrow").summary["tokens"]["input"] == sum(lengths) == 5634


def test_B10_a_prompt_computed_in_chunks_leaves_the_same_keys_and_the_same_later_hits(tmp_path: Path) -> None:
    tokens = [*range(200)]
    prompts = [tokens, [*tokens[:150], *range(900, 950)], tokens]
    table = pa.table(
        {
            "arrival_ns": [0, 10**12, 2 * 10**12],
            "input_tokens": pa.array([200] * 3, pa.uint32()),
            "token_ids": pa.array(prompts, pa.list_(pa.uint32())),
        }
    ).replace_schema_metadata(TraceFacts(block_tokens=16).to_metadata())
    held, hits, steps = [], [], []
    for at_once in (100, 200):
        log = tmp_path / f"{at_once}.parquet"
        result = serve(table, worker=f"batch_tokens={at_once}", events=str(log))
        held.append(fold_file(log).places())
        hits.append(column(result, "hit_tokens"))
        steps.append(result.summary["timed"]["workers"]["each"][0]["steps"])
    assert steps[0] > steps[1]
    assert held[0] == held[1]
    assert [len(keys) for _, keys in held[0]] == [12 + 3]
    assert hits[0] == hits[1] == [0, 144, 192]


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("chat,turns=1,system_tokens=3", "system_tokens = 3"),
        ("agent,steps=1,subagent_share=0,system_tokens=3", "system_tokens = 3"),
        ("docqa,system_tokens=1,document_tokens=2", "system_tokens + document_tokens = 3"),
        ("rag,system_tokens=3,docs_per_request=0", "system_tokens = 3"),
        ("tenants,shared_tokens=1,prompt_tokens=2", "shared_tokens + prompt_tokens = 3"),
        ("loop,prompt_tokens=3", "prompt_tokens = 3"),
    ],
)
def test_C11_a_prefix_shorter_than_a_block_is_told_to_be_never_reused(tmp_path: Path, workload: str, said: str) -> None:
    made = run("make", f"{workload},block_tokens=64", "-o", tmp_path / "t.arrow")
    assert made.exit_code == 0, made.output
    assert f"note: {said} is less than a block of 64 tokens" in made.stderr
    assert "token rate 0.00%" in made.stdout
    assert replayed(tmp_path / "t.arrow").rates["token"] == 0
    fitting = run("make", f"{workload},block_tokens=1", "-o", tmp_path / "u.arrow")
    assert fitting.stderr == ""
