"""Any table with a map of its columns."""

from __future__ import annotations

import bz2
import gzip
import json

import foreign
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.errors import ConfigError, TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.formats import tablefiles

S = 10**9
CSV = "ts,prompt,gen,blocks,who\n0,33,5,1 2 3,é\n1.5,16,6,1,b\n3,40,7,1 2 9,é\n"
MAP = {
    "arrival": "ts:s",
    "input": "prompt",
    "output": "gen",
    "ids": "blocks",
    "session": "who",
    "block_tokens": 16,
}
TIMES_S = (1_700_000_000, 1_700_000_001, 1_700_000_003)
FRACTIONS_NS = (0, 123_456_000, 500_000_000)


def imported(tmp_path, data: bytes | str, **params) -> list[dict]:
    path = tmp_path / "source"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    import_trace(path, tmp_path / "t.arrow", format=foreign.make("columns", **params), keep_ids=True, force=True)
    return pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).to_pylist()


def jsonl_of(csv: str) -> bytes:
    header, *lines = csv.splitlines()
    rows = (dict(zip(header.split(","), line.split(","), strict=True)) for line in lines)
    return foreign.jsonl(*({**row, "prompt": int(row["prompt"]), "ts": float(row["ts"])} for row in rows))


def parquet_of(csv: str) -> bytes:
    rows = [json.loads(line) for line in jsonl_of(csv).splitlines()]
    table = pa.Table.from_pylist([{**row, "blocks": [int(each) for each in row["blocks"].split()]} for row in rows])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


CARRIERS = {
    "plain": CSV.encode(),
    "crlf": CSV.replace("\n", "\r\n").encode(),
    "mark": b"\xef\xbb\xbf" + CSV.encode(),
    "blank lines": ("\n" + CSV.replace("\n", "\n\n") + "\n\n").encode(),
    "no final newline": CSV.rstrip().encode(),
    "gzip members": gzip.compress(CSV[:30].encode()) + gzip.compress(CSV[30:].encode()),
    "bzip2": bz2.compress(CSV.encode()),
    "zstd": pa.compress(CSV.encode(), "zstd", asbytes=True),
    "jsonl": jsonl_of(CSV),
    "jsonl.gz, crlf": gzip.compress(jsonl_of(CSV).replace(b"\n", b"\r\n\r\n")),
    "parquet": parquet_of(CSV),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a25_the_same_rows_come_out_of_whatever_carries_them(tmp_path, carrier):
    assert imported(tmp_path, CARRIERS[carrier], **MAP) == [
        {
            "arrival_ns": arrival,
            "input_tokens": prompt,
            "output_tokens": answer,
            "block_ids": dense,
            "original_ids": ids,
            "session_id": session,
        }
        for arrival, prompt, answer, dense, ids, session in (
            (0, 33, 5, [0, 1, 2], [1, 2, 3], "é"),
            (3 * S // 2, 16, 6, [0], [1], "b"),
            (3 * S, 40, 7, [0, 1, 3], [1, 2, 9], "é"),
        )
    ]


def iso(second: int, fraction_ns: int, zone: str) -> str:
    return f"2023-11-14T22:13:{20 + second - TIMES_S[0]}.{fraction_ns:09d}{zone}"


CLOCKS = {
    "iso": ("ts:iso", lambda s, ns: iso(s, ns, "")),
    "iso with a zone": ("ts:iso", lambda s, ns: iso(s, ns, "+00:00")),
    "epoch s": ("ts:epoch", lambda s, ns: f"{s}.{ns:09d}"),
    "epoch ms": ("ts:epoch", lambda s, ns: f"{s * 1000 + ns // 10**6}.{ns % 10**6:06d}"),
    "epoch us": ("ts:epoch", lambda s, ns: str(s * 10**6 + ns // 1000)),
    "epoch ns": ("ts:epoch", lambda s, ns: str(s * S + ns)),
    "s": ("ts:s", lambda s, ns: f"{s - TIMES_S[0]}.{ns:09d}"),
    "s since 1970": ("ts:s", lambda s, ns: f"{s}.{ns:09d}"),
    "ms": ("ts:ms", lambda s, ns: f"{(s - TIMES_S[0]) * 1000 + ns / 10**6}"),
    "us": ("ts:us", lambda s, ns: str((s - TIMES_S[0]) * 10**6 + ns // 1000)),
    "ns": ("ts:ns", lambda s, ns: str((s - TIMES_S[0]) * S + ns)),
}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_one_trace_in_dates_epochs_and_units_gives_one_result(tmp_path, kind):
    found = []
    for arrival, written in CLOCKS.values():
        texts = [written(*at) for at in zip(TIMES_S, FRACTIONS_NS, strict=True)]
        if kind == "csv":
            data = "ts,n\n" + "".join(f"{text},7\n" for text in texts)
        else:
            quoted = (f'"{text}"' if "iso" in arrival else text for text in texts)
            data = "".join(f'{{"ts": {text}, "n": 7}}\n' for text in quoted)
        found.append([row["arrival_ns"] for row in imported(tmp_path, data, arrival=arrival, input="n")])
    assert found == [[0, S + 123_456_000, 3 * S + 500_000_000]] * len(CLOCKS)


def test_timestamps_of_parquet_are_dates(tmp_path):
    sink = pa.BufferOutputStream()
    times = pa.array([1_700_000_000_000_001, 1_700_000_000_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": times, "n": pa.array([5.0, 6.0])}), sink)
    rows = imported(tmp_path, sink.getvalue().to_pybytes(), arrival="at:iso", input="n")
    assert [(row["arrival_ns"], row["input_tokens"]) for row in rows] == [(0, 6), (1_000, 5)]


def test_a18_negative_times_are_refused_unless_the_origin_is_the_first(tmp_path):
    data = "ts,n\n-5,1\n2,1\n"
    with pytest.raises(TraceError, match="row 2, arrival_ns = -5000000000: must not be negative"):
        imported(tmp_path, data, arrival="ts:s", input="n")
    rows = imported(tmp_path, data, arrival="ts:s", input="n", origin="first")
    assert [row["arrival_ns"] for row in rows] == [0, 7 * S]


@pytest.mark.parametrize("given", [{"end": "end:s"}, {"duration": "took:ms"}])
def test_a31_think_time_runs_from_the_end_of_the_turn_before(tmp_path, given):
    data = "ts,end,took,n,who\n0,4,4000,9,a\n1,2,1000,9,b\n6,7,1000,9,a\n"
    rows = imported(tmp_path, data, arrival="ts:s", input="n", session="who", **given)
    assert [(row["turn"], row["think_time_ns"]) for row in rows] == [(0, None), (0, None), (1, 2 * S)]
    with pytest.raises(TraceError, match="row 3, who = 'a': arrives before an earlier row of its session"):
        imported(
            tmp_path, "ts,end,took,n,who\n5,6,1,1,a\n4,6,1,1,a\n", arrival="ts:s", input="n", session="who", **given
        )


def test_all_columns_of_a_trace_can_be_mapped(tmp_path):
    data = foreign.jsonl(
        {"at": 1, "usage": {"in": 2, "out": 3}, "s": 4, "t": 5, "p": 60, "m": "m", "a": "x", "u": "u", "k": "chat"}
        | {"pri": -1, "id": "r", "tok": [7, 8]}
    )
    mapped = {"arrival": "at:ms", "think": "p:ms", "input": "usage.in", "output": "usage.out", "session": "s"}
    mapped |= {"turn": "t", "model": "m", "adapter": "a", "tenant": "u", "type": "k", "priority": "pri"}
    assert imported(tmp_path, data, **mapped, request="id", tokens="tok") == [
        {
            "arrival_ns": 10**6,
            "input_tokens": 2,
            "output_tokens": 3,
            "token_ids": [7, 8],
            "request_id": "r",
            "session_id": "4",
            "turn": 5,
            "think_time_ns": 60 * 10**6,
            "model": "m",
            "adapter": "x",
            "tenant": "u",
            "priority": -1,
            "type": "chat",
        }
    ]


def test_facts_of_ids_are_those_that_are_given(tmp_path):
    data = "n;h\n40;0xa:0xb\n33;0xa:0xc\n"
    rows = imported(
        tmp_path, data, input="n", ids="h", delimiter="semicolon", separator="colon", block_tokens=16,
        tail_rule="floor", id_kind="content", id_scope="global", rate=2.0,
    )  # fmt: skip
    facts = open_trace(tmp_path / "t.arrow").facts
    assert (facts.block_tokens, facts.tail_rule, facts.id_kind, facts.id_scope) == (16, "floor", "content", "global")
    assert [(row["arrival_ns"], row["original_ids"]) for row in rows] == [(0, [10, 11]), (S // 2, [10, 12])]


def test_lengths_are_counted_from_ids_where_no_column_has_them(tmp_path):
    rows = imported(tmp_path, "h\n1 2\n3\n", ids="h", block_tokens=16)
    assert [row["input_tokens"] for row in rows] == [32, 16]
    rows = imported(tmp_path, "h\n1 2\n3\n", tokens="h")
    assert [row["input_tokens"] for row in rows] == [2, 1]


def test_a_table_without_a_header_has_numbered_columns(tmp_path):
    rows = imported(tmp_path, "7,7\n8.5,8\n", arrival="1:s", input="2", header=False)
    assert [(row["arrival_ns"], row["input_tokens"]) for row in rows] == [(7 * S, 7), (17 * S // 2, 8)]


def test_columns_that_are_not_mapped_are_counted(tmp_path):
    (tmp_path / "t.csv").write_text("ts,n,colour\n0,1,red\n1,1,\n")
    format = foreign.make("columns", arrival="ts:s", input="n")
    assert import_trace(tmp_path / "t.csv", tmp_path / "t.arrow", format=format).ignored_fields == {"colour": 1}


@pytest.mark.parametrize("data", [CSV, jsonl_of(CSV), parquet_of(CSV)], ids=["csv", "jsonl", "parquet"])
def test_a24_a_column_that_is_not_there_is_told_with_the_nearest_and_all(tmp_path, data):
    with pytest.raises(
        TraceError, match=r"no column 'promt'; did you mean 'prompt'\? \(known: blocks, gen, prompt, ts"
    ):
        imported(tmp_path, data, **MAP | {"input": "promt"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival": "ts"}, "arrival = 'ts' needs a unit, as in arrival=ts:ms"),
        ({"arrival": "ts:sec"}, "'sec' is no unit; .*known: s, ms, us, ns, iso, epoch"),
        ({"think": "ts:iso"}, "'iso' is no unit"),
        ({"input": "", "ids": ""}, "say which column has the length of prompts"),
        ({"tokens": "blocks"}, "ids and tokens both identify the prompt"),
        ({"input": "", "block_tokens": 0}, "without input, lengths are counted from the ids, which needs block_tokens"),
        ({"rate": 1.0}, "rate and interval_s are for tables without arrivals"),
        ({"end": "ts:s", "think": "ts:s"}, "give one of them"),
        ({"end": "ts:s", "session": ""}, "end and duration need session and arrival"),
    ],
)
def test_a_map_that_cannot_work_is_refused(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        imported(tmp_path, CSV, **MAP | change)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            CSV.replace("1 2 9", "1 2 x"),
            "row 4, blocks = \\['1', '2', 'x'\\]: 'x' must be a decimal number of 64 bits; if it is hex",
        ),
        (CSV.replace("1.5", "Infinity"), "row 3, ts = 'Infinity': must be a finite number"),
        (CSV.replace("40", "40.5"), "row 4, prompt = '40.5': must be a whole number"),
        (CSV.replace("40", "0"), "row 4, input_tokens = 0: a request must have at least one input token"),
        (jsonl_of(CSV).replace(b'"gen": "7"', b'"gen": [7]'), "row 3, gen = .*: must be a number or a text"),
        (jsonl_of(CSV).replace(b'"gen": "7"', b'"gen": true'), "row 3, gen = True: must be a number or a text"),
        (jsonl_of(CSV) + b"[]\n", r"row 4, line = \[\]: must be a JSON object"),
        (b"PAR1 and no more", "is cut short or damaged"),
        ("", "has no rows"),
    ],
    ids=range(9),
)
def test_a20_a_bad_value_is_told_with_its_place(tmp_path, data, message):
    with pytest.raises(TraceError, match=message) as caught:
        imported(tmp_path, data, **MAP)
    assert "\n" not in str(caught.value)


def test_a_row_of_csv_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tablefiles, "BLOCK_BYTES", 64)
    with pytest.raises(TraceError, match=r"cannot be read as CSV: a row has more than .* is a quote missing"):
        imported(tmp_path, CSV + "9," + "x" * 1000 + "\n" + CSV, **MAP)
