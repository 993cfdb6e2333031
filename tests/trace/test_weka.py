"""WEKA conversations: published and measured figures, sub-agents, scopes of ids, and what cannot be read."""

from __future__ import annotations

import gzip
import json
import tarfile

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.columns import list_parts
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.fields import MAX_MADE_IDS
from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.formats.text import Lines
from kvbench.trace.formats.weka import WekaFormat

FOLDER = "traces/kv-cache-tester"


def request(t, tokens, ids, **more):
    return {"t": t, "type": "n", "model": "m", "in": tokens, "out": 3, "hash_ids": ids, **more}


def conversation(*requests, **more):
    return {"id": "c", "block_size": 64, "hash_id_scope": "local", "requests": list(requests), **more}


def written(path, *documents):
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def read(path, format=None, log=None):
    batches = list((format or WekaFormat()).read(Lines(path), log or ReadLog()))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def hits(path, tmp_path, **settings):
    import_trace(path, tmp_path / "t.arrow", format=WekaFormat(), force=True)
    return kvbench.replay(tmp_path / "t.arrow", **settings).summary["blocks"]["hit"]


@pytest.fixture(scope="module")
def figures(shared):
    """Totals of the 710 conversations, and each one's share of leading blocks that the request before had, too."""
    totals = dict.fromkeys(("rows", "inner", "n", "s", "input", "output", "blocks", "inner input", "aligned"), 0)
    shares, last = {}, {}
    for batch in WekaFormat().read(Lines(shared / FOLDER / "weka_traces_710_rle.jsonl.gz"), ReadLog()):
        offsets, values = list_parts(batch.column("block_ids"))
        ids = values.to_numpy()
        columns = (batch.column(name).to_pylist() for name in ("session_id", "type", "input_tokens", "output_tokens"))
        for at, (session, kind, tokens, output) in enumerate(zip(*columns, strict=True)):
            if kind == "subagent":
                totals["inner"] += 1
                totals["inner input"] += tokens
                continue
            row = ids[offsets[at] : offsets[at + 1]]
            before = last.get(session, row[:0])
            both = min(len(row), len(before))
            same = row[:both] == before[:both]
            hit, asked = shares.get(session, (0, 0))
            shares[session] = (hit + (both if same.all() else int(same.argmin())), asked + len(row))
            last[session] = row.copy()
            totals["rows"] += 1
            totals[kind] += 1
            totals["input"] += tokens
            totals["output"] += output
            totals["blocks"] += len(row)
            totals["aligned"] += tokens % 64 == 0
    return totals, np.array([hit / asked for hit, asked in shares.values()])


def test_all_requests_of_the_710_conversations_are_read(figures):
    totals, shares = figures
    assert len(shares) == 710
    assert totals == {
        "rows": 48_658,
        "inner": 676,
        "n": 40_192,
        "s": 8_466,
        "input": 6_006_837_305,
        "output": 21_366_327,
        "blocks": 93_832_730,
        "inner input": 30_608_098,
        "aligned": 705,
    }


def test_reuse_between_neighbours_is_what_its_authors_publish(figures):
    _, shares = figures
    quartiles = np.quantile(shares, [0, 0.25, 0.5, 0.75, 1])
    measured = [0.6057347670250897, 0.9188684402332361, 0.9544888061874373, 0.9716458970396431, 0.9925584952693899]
    assert quartiles.tolist() == pytest.approx(measured, abs=1e-15)
    assert [round(100 * share, 1) for share in quartiles] == [60.6, 91.9, 95.4, 97.2, 99.3]
    assert np.quantile(shares, 0.5, method="closest_observation") == pytest.approx(0.9544765638018456, abs=1e-15)
    assert shares.mean() == pytest.approx(0.9286024962169231, abs=1e-15)
    assert np.round(100 * quartiles[[0, 1, 3]]).tolist() == [61, 92, 97]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("starts", "lru"),
    [
        ("in-turn", {1_000: 7_271_575, 10_000: 88_627_559, 30_000: 90_443_626}),
        ("together", {1_000: 149_808, 100_000: 42_211_967}),
    ],
)
def test_replays_of_all_conversations_hit_every_measured_count(shared, tmp_path, starts, lru):
    """Some minutes: pytest -m slow tests/trace/test_weka.py"""
    source = shared / FOLDER / "weka_traces_710_rle.jsonl.gz"
    report = import_trace(source, tmp_path / "t.arrow", format=WekaFormat(starts=starts, subagents="drop"))
    assert (report.rows, report.distinct_blocks) == (48_658, 3_389_104)
    for capacity, hit in lru.items():
        replayed = kvbench.replay(tmp_path / "t.arrow", capacity=capacity, order="access")
        assert round(replayed.rates["block_any"] * 93_832_730) == hit
    assert replayed.summary["blocks"]["infinite_hit"] == 90_443_626
    infinite = kvbench.replay(tmp_path / "t.arrow")
    assert infinite.rates["block"] == 0.963881430285573
    assert infinite.rates["request_mean"] == pytest.approx(0.9528540402280768, abs=1e-12)


def test_runs_of_ids_stand_for_what_the_original_files_have(shared, tmp_path):
    originals = shared / FOLDER / "weka_original_sample.tar.gz"
    with tarfile.open(originals) as archive:
        names = {member.name.split("/")[-1] for member in archive if member.isfile()}
    assert len(names) == 51
    with gzip.open(shared / FOLDER / "weka_traces_710_rle.jsonl.gz", "rt") as lines:
        (tmp_path / "runs.jsonl").write_text("".join(line for line in lines if json.loads(line)["file"] in names))
    tables = []
    for source in (originals, tmp_path / "runs.jsonl"):
        report = import_trace(source, tmp_path / "t.arrow", format=WekaFormat(), keep_ids=True, force=True)
        tables.append(pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).combine_chunks())
        assert report.notes[0].startswith("arrival times are coarse")
        assert any("do not say when a conversation began" in note for note in report.notes)
    assert tables[0].equals(tables[1])


SUBAGENT = {"t": 20.0, "type": "subagent", "agent_id": "a", "duration_ms": 12_000}
INNER = [request(0.0, 64, [7], api_time=2.0, think_time=0.0), request(5.0, 128, [7, 8], api_time=1.0, think_time=3.0)]
PARENT = [
    request(0.0, 64, [1], api_time=7.5, think_time=0.0),
    SUBAGENT | {"requests": INNER},
    request(25.0, 128, [1, 2], api_time=1.0, think_time=17.5),
    request(30.0, 128, [1, 2], think_time=4.0),
]


@pytest.mark.parametrize(
    ("convention", "inner_s"),
    [("auto", [8, 13]), ("launch", [8, 13]), ("marker", [20, 25]), ("conversation", [0, 5])],
)
def test_times_of_sub_agents_count_from_what_is_said(tmp_path, convention, inner_s):
    """By itself the format sees that the entry was written 12 s after the launch, when the sub-agent had ended."""
    rows = read(written(tmp_path / "c.json", conversation(*PARENT)), WekaFormat(subagent_time=convention))
    assert [row["arrival_ns"] / 1e9 for row in rows if row["type"] == "subagent"] == inner_s
    assert [row["turn"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["arrival_ns"] for row in rows] == sorted(row["arrival_ns"] for row in rows)


def test_times_of_sub_agents_from_the_conversations_start_are_recognised(tmp_path):
    inner = [request(8.5, 64, [7]), request(12.0, 64, [7])]
    file = written(tmp_path / "c.json", conversation(PARENT[0], SUBAGENT | {"requests": inner}, *PARENT[2:]))
    rows = read(file)
    assert [row["arrival_ns"] / 1e9 for row in rows] == [0, 8.5, 12, 25, 30]


def test_a_sub_agent_in_the_background_runs_from_its_entry_on(tmp_path):
    background = SUBAGENT | {"duration_ms": None, "requests": INNER}
    rows = read(written(tmp_path / "c.json", conversation(PARENT[0], background, *PARENT[2:])))
    assert [row["arrival_ns"] / 1e9 for row in rows if row["type"] == "subagent"] == [20, 25]


def test_think_time_is_the_files_within_an_agent_and_worked_out_between_agents(tmp_path):
    rows = read(written(tmp_path / "c.json", conversation(*PARENT)))
    # 0–7.5, then the sub-agent's 8–10 and 13–14, then 25–26, and one whose end is unknown.
    assert [row["think_time_ns"] for row in rows] == [None, 500_000_000, 3_000_000_000, 11_000_000_000, 4_000_000_000]
    dropped = read(tmp_path / "c.json", WekaFormat(subagents="drop"))
    assert [row["request_id"] for row in dropped] == ["c/0", "c/1", "c/2"]


def test_think_time_is_null_where_the_end_of_the_turn_before_is_unknown(tmp_path):
    rows = read(written(tmp_path / "c.json", conversation(request(0, 64, [1]), request(9, 64, [1]))))
    assert [row["think_time_ns"] for row in rows] == [None, None]


def test_A10_local_ids_mean_something_in_their_conversation_only(tmp_path):
    two = [request(0, 128, [1, 2])]
    for scope, wanted in (("local", 0), ("global", 2), (None, 2)):
        documents = [conversation(*two, id=name, hash_id_scope=scope) for name in "ab"]
        assert hits(written(tmp_path / "c.jsonl", *documents), tmp_path) == wanted, scope
    with pytest.raises(TraceError, match=r"row 2, hash_id_scope = 'global': is not that of the conversations before"):
        read(written(tmp_path / "c.jsonl", conversation(*two), conversation(*two, hash_id_scope="global")))


def test_conversations_of_one_name_are_told_apart(tmp_path):
    row = conversation(request(0, 64, [1]))
    rows = read(written(tmp_path / "c.jsonl", row, row))
    assert [row["session_id"] for row in rows] == ["c", "c#2"]
    assert hits(tmp_path / "c.jsonl", tmp_path) == 0


def test_conversations_start_together_or_in_turn(tmp_path):
    row = conversation(request(0, 64, [1]), request(4, 64, [1], api_time=1.5))
    file = written(tmp_path / "c.jsonl", row, row)
    for starts, seconds in (("together", [0, 4, 0, 4]), ("in-turn", [0, 4, 5.5, 9.5])):
        assert [row["arrival_ns"] / 1e9 for row in read(file, WekaFormat(starts=starts))] == seconds


def test_a_conversation_may_be_printed_over_many_lines(tmp_path):
    plain = read(written(tmp_path / "c.json", conversation(*PARENT)))
    (tmp_path / "p.json").write_text(json.dumps(conversation(*PARENT), indent=2).replace("\n", "\r\n"))
    assert read(tmp_path / "p.json") == plain


def test_A05_a_format_with_tails_and_one_without_refuse_each_others_rows(tmp_path):
    weka = written(tmp_path / "w.json", conversation(request(0, 33, [1, 2, 3]), block_size=16))
    with pytest.raises(TraceError, match=r"3 ids: 33 input tokens in blocks of 16 \(tails not counted: floor\) make 2"):
        import_trace(weka, tmp_path / "t.arrow", format=WekaFormat())
    mooncake = written(tmp_path / "m.jsonl", {"timestamp": 0, "input_length": 33, "hash_ids": [1, 2]})
    with pytest.raises(TraceError, match=r"2 ids: 33 input tokens in blocks of 16 \(tails counted: ceil\) make 3"):
        import_trace(mooncake, tmp_path / "t.arrow", format=MooncakeFormat(), block_tokens=16)


GOOD = request(1, 64, [1])
BAD = {
    "negative time": (GOOD | {"t": -1}, r"c requests\[1\].t = -1.0: must not be negative"),
    "far time": (GOOD | {"t": 1e300}, r"c requests\[1\].t = 1e\+300: is too large"),
    "no length": (GOOD | {"in": None}, r"c requests\[1\].in = None: is missing"),
    "wide length": (GOOD | {"in": 2**32}, r"c requests\[1\].in = 4294967296: must be from 0"),
    "negative answer": (GOOD | {"out": -1}, r"c requests\[1\].out = -1: must be from 0"),
    "no ids": (GOOD | {"hash_ids": None}, r"c requests\[1\].hash_ids = None: is missing"),
    "negative id": (GOOD | {"hash_ids": [-1]}, r"c requests\[1\].hash_ids = -1: must be from 0"),
    "wide id": (GOOD | {"hash_ids": [2**64]}, r"c requests\[1\].hash_ids = 18446744073709551616: must be"),
    "too few in runs": (
        GOOD | {"hash_ids": None, "hash_rle": [[1, 2]]},
        r"c requests\[1\].hash_rle = \[\(1, 2\)\]: stands for 2 ids, and the prompt has 1 full blocks",
    ),
    "run past the end": (
        GOOD | {"hash_ids": None, "hash_rle": [[2**64 - 1, 2]]},
        r"c requests\[1\].hash_rle = \[18446744073709551615, 2\]: must be the first id and their number",
    ),
    "gigabytes": (
        GOOD | {"in": 2**32 - 1, "hash_ids": None, "hash_rle": [[1, 2**26 - 1]]},
        rf"c requests\[1\].in = 4294967295: makes 67,108,863 blocks .* has {MAX_MADE_IDS:,} at most",
    ),
    "nested sub-agent": (
        SUBAGENT | {"requests": [SUBAGENT | {"requests": []}]},
        r"c requests\[1\].requests\[0\].type = 'subagent': a sub-agent of a sub-agent",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_told_with_its_place_and_can_be_left_out(tmp_path, case):
    bad, message = BAD[case]
    file = written(tmp_path / "c.json", conversation(request(0, 64, [1]), bad, request(2, 64, [1])))
    with pytest.raises(TraceError, match=rf"^{file}, row 2, {message}"):
        read(file)
    log = ReadLog(skip=True)
    assert [row["x_row"] for row in read(file, log=log)] == [1, 3]
    assert log.rejected.count == 1


BAD_CONVERSATIONS = {
    "syntax": ('{"id": "c", "requests": [}', r"line = .*: is not valid JSON"),
    "no requests": ({"block_size": 64}, r"line = .*: object missing required field `requests`"),
    "text time": (
        conversation(GOOD | {"t": "x"}),
        r"requests\[0\]\.t = 'x': expected `float`, got `str`",
    ),
    "empty blocks": (conversation(GOOD, block_size=0), r"block_size = 0: must be 1 at least"),
    "other blocks": (
        conversation(GOOD, block_size=16),
        r"block_size = 16: is not that of the conversations",
    ),
    "scope": (conversation(GOOD, hash_id_scope="mine"), r"hash_id_scope = 'mine': must be local or global"),
}


@pytest.mark.parametrize("case", BAD_CONVERSATIONS)
def test_a_bad_conversation_is_told_with_its_line_and_can_be_left_out(tmp_path, case):
    bad, message = BAD_CONVERSATIONS[case]
    text = bad if isinstance(bad, str) else json.dumps(bad)
    file = tmp_path / "c.jsonl"
    file.write_text("\n".join([json.dumps(conversation(GOOD)), text, json.dumps(conversation(GOOD))]))
    with pytest.raises(TraceError, match=rf"^{file}, row 2, {message}"):
        read(file)
    log = ReadLog(skip=True)
    assert [row["session_id"] for row in read(file, log=log)] == ["c", "c#2"]
    assert log.rejected.count == 1
