"""``trace select``: what is taken is whole, what is put together stays apart."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvbench
from kvbench.errors import ConfigError, TraceError
from kvbench.trace import open_trace
from kvbench.trace.sampling import UnitChoice
from kvbench.trace.schema import TraceFacts
from kvbench.trace.select import RowRange, Selection, select_traces
from kvbench.trace.select.merge import merged
from kvbench.trace.synth.chat import make_chat
from kvbench.trace.synth.rag import make_rag


def table_of(workload) -> pa.Table:
    table = pa.Table.from_batches(list(workload.batches()))
    return table.replace_schema_metadata(workload.facts.to_metadata())


CHAT = table_of(make_chat(1, sessions=60, system_tokens=130))


@pytest.fixture
def selected(tmp_path):
    """``selected(tables, **settings)``: the rows that a selection writes, with its facts, and the report."""

    def select(*tables: pa.Table, **settings) -> tuple[pa.Table, TraceFacts]:
        output = tmp_path / "out.arrow"
        select.report = select_traces(
            [open_trace(table) for table in tables], output, Selection(**settings), force=True
        )
        trace = open_trace(output)
        return pa.Table.from_batches(list(trace.batches()), trace.schema).replace_schema_metadata(
            trace.facts.to_metadata()
        )

    return select


def facts_of(table: pa.Table) -> TraceFacts:
    return TraceFacts.from_metadata(table.schema.metadata, "table")


def hits(table: pa.Table) -> int:
    return kvbench.replay(table).summary["blocks"]["hit"]


def sessions_of(table: pa.Table) -> dict[str, int]:
    return dict(map(tuple, (each.values() for each in table["session_id"].value_counts().to_pylist())))


def test_a13_a_sample_of_sessions_splits_none_and_says_the_capacity_it_implies(selected):
    half = selected(CHAT, sample=UnitChoice(0.5, "session", seed=1))
    whole, kept = sessions_of(CHAT), sessions_of(half)
    assert 15 < len(kept) < 45
    assert all(whole[name] == turns for name, turns in kept.items())
    assert half.equals(selected(CHAT, sample=UnitChoice(0.5, "session", seed=1)))
    assert sessions_of(selected(CHAT, sample=UnitChoice(0.5, "session", seed=2))) != kept
    assert facts_of(half).capacity_factor == selected.report.capacity_factor == 0.5
    assert facts_of(selected(half, sample=UnitChoice(0.5, "session", seed=3))).capacity_factor == 0.25
    assert (selected.report.units, selected.report.kept_rows) == (len(kept), selected.report.rows)


def test_a_session_is_in_a_sample_whatever_else_is_in_the_trace(selected):
    choice = UnitChoice(0.5, "session", seed=1)
    alone = selected(CHAT, sample=choice, sessions=("s1", "s2", "s3", "s4", "s5"))
    assert sessions_of(alone).items() <= sessions_of(selected(CHAT, sample=choice)).items()


@pytest.mark.parametrize("ids", ["block", "token"])
def test_a_sample_of_trees_keeps_all_prompts_that_share_a_first_block(selected, ids):
    table = table_of(make_rag(1, requests=300, system_tokens=0, docs_per_request=1, num_documents=40, ids=ids))
    column = f"{ids}_ids"
    tree = lambda row: tuple(row[: 1 if ids == "block" else 64])  # noqa: E731
    half = selected(table, sample=UnitChoice(0.5, "tree"))
    kept = {row.as_py() for row in half["request_id"]}
    trees = {tree(ids): set() for ids in table[column].to_pylist()}
    for name, row in zip(table["request_id"].to_pylist(), table[column].to_pylist(), strict=True):
        trees[tree(row)].add(name in kept)
    assert all(len(found) == 1 for found in trees.values())
    assert selected.report.units == 40
    assert 8 < selected.report.kept_units < 32


def test_merged_traces_share_nothing_unless_they_are_said_to(selected):
    apart, shared = selected(CHAT, CHAT), selected(CHAT, CHAT, shared_ids=True)
    assert hits(apart) == 2 * hits(CHAT)
    assert hits(shared) > hits(apart)
    assert len(sessions_of(apart)) == 2 * len(sessions_of(shared)) == 120
    assert apart["request_id"][:2].to_pylist() == ["1/s0-t0", "2/s0-t0"]


def test_merged_token_traces_share_nothing_either(selected):
    table = table_of(make_chat(1, sessions=10, ids="token"))
    assert hits(selected(table, table, repeat=2)) == 4 * hits(table)


def test_ids_of_a_session_stay_those_of_a_session(selected):
    facts = TraceFacts(block_tokens=10, id_scope="session")
    table = pa.table(
        {"arrival_ns": [0, 1], "input_tokens": [20, 20], "block_ids": [[1, 2], [1, 2]], "session_id": ["a", "b"]}
    ).replace_schema_metadata(facts.to_metadata())
    assert selected(table, table)["block_ids"].to_pylist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert selected(table, table, shared_ids=True)["block_ids"].to_pylist() == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_repeats_have_fresh_ids_and_follow_after_a_mean_gap(selected):
    thrice = selected(CHAT, repeat=3)
    assert hits(thrice) == 3 * hits(CHAT)
    assert len(sessions_of(thrice)) == 180
    rows, arrivals = len(CHAT), thrice["arrival_ns"].to_pylist()
    span = arrivals[rows - 1] - arrivals[0]
    assert arrivals[rows] == arrivals[rows - 1] + round(span / (rows - 1))


def test_h_k_a_rate_is_scaled_from_the_first_arrival(selected, make_table):
    table = make_table(arrival_ns=[1_000, 1_001, 1_003])
    assert selected(table, scale_rate=Fraction(2))["arrival_ns"].to_pylist() == [1_000, 1_001, 1_002]
    assert selected(table, scale_rate=Fraction(1, 2), start_ns=0)["arrival_ns"].to_pylist() == [0, 2, 6]


def test_a_scaled_rate_adds_up_no_rounding(selected, make_table):
    far = 2**60
    table = make_table(arrival_ns=[0, far, far + 7])
    assert selected(table, scale_rate=Fraction(7, 3))["arrival_ns"].to_pylist() == [
        round(Fraction(time * 3, 7)) for time in (0, far, far + 7)
    ]
    with pytest.raises(ConfigError, match="292 years"):
        selected(table, scale_rate=Fraction(1, 100))


def test_rows_and_windows_are_taken_of_the_trace_and_then_moved(selected, make_table):
    table = make_table(arrival_ns=[0, 5, 9])
    assert selected(table, from_ns=5, until_ns=9, start_ns=1)["arrival_ns"].to_pylist() == [1]
    assert selected(table, rows=RowRange.parse("2:"))["arrival_ns"].to_pylist() == [5, 9]
    assert selected(table, rows=RowRange.parse(":1"))["arrival_ns"].to_pylist() == [0]
    assert selected(table, rows=RowRange.parse("2:2"), from_ns=1)["block_ids"].to_pylist() == [[0, 1]]


def written(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


def test_rows_of_merged_files_get_their_names_for_tenants_unless_they_have_one(tmp_path, make_table):
    own, other = make_table(tenant=["gold", None, None]), make_table()
    chat, rag = written(tmp_path / "chat.arrow", own), written(tmp_path / "rag.arrow", other)
    output = tmp_path / "both.arrow"
    select_traces([open_trace(chat), open_trace(rag)], output, Selection(name_tenants=True))
    tenants = [row["tenant"] for batch in open_trace(output).batches() for row in batch.to_pylist()]
    assert sorted(tenants) == ["chat", "chat", "gold", "rag", "rag", "rag"]
    assert kvbench.replay(output).summary["blocks"]["hit"] == hits(own) + hits(other) > 0
    again = written(tmp_path / "elsewhere" / "chat.arrow", own)
    with pytest.raises(ConfigError, match="two TRACEs would be the tenant 'chat'"):
        select_traces([open_trace(chat), open_trace(again)], output, Selection(name_tenants=True), force=True)


def test_a23_silent_rows_are_left_out_on_request_and_counted(selected, make_table):
    table = make_table(output_tokens=[10, None, 0])
    assert selected(table)["output_tokens"].to_pylist() == [10, None, 0]
    assert selected(table, drop_silent=True)["output_tokens"].to_pylist() == [10, None]
    assert selected.report.silent == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tenants": ("a",)}, "has no column tenant"),
        ({"sample": UnitChoice(1.5, "tree")}, "must be above 0 and below 1"),
        ({"sample": UnitChoice(0.5, "session")}, "needs a column session_id"),
        ({"shared_ids": True}, "no effect on one trace"),
        ({"from_ns": 5, "until_ns": 5}, "--until must be after --from"),
        ({"repeat": 0}, "--repeat = 0 is below 1"),
        ({"scale_rate": Fraction(0)}, "must be above 0"),
        ({"from_ns": 10}, "no row is left"),
    ],
)
def test_selections_that_a_trace_cannot_give_are_refused(selected, make_table, settings, message, tmp_path):
    with pytest.raises((ConfigError, TraceError), match=message):
        selected(make_table(), **settings)
    assert list(tmp_path.iterdir()) == []


def test_traces_of_two_block_sizes_do_not_go_together(selected, make_table):
    with pytest.raises(ConfigError, match=r"block_tokens is 64 in .* and 512 in"):
        selected(CHAT, make_table())


@given(st.lists(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), max_size=4), min_size=1, max_size=4))
def test_any_batches_merge_by_arrival_and_at_a_tie_by_trace(sources):
    feeds, expected = [], []
    for at, batches in enumerate(sources):
        times = sorted(time for batch in batches for time in batch)
        expected += [(time, at, row) for row, time in enumerate(times)]
        cut, feed = 0, []
        for batch in batches:
            rows = list(range(cut, cut + len(batch)))
            cut += len(batch)
            feed.append(
                pa.RecordBatch.from_pydict(
                    {"arrival_ns": [times[row] for row in rows], "source": [at] * len(rows), "row": rows}
                )
            )
        feeds.append(iter(feed))
    found = [tuple(row.values()) for batch in merged(feeds) for row in batch.to_pylist()]
    assert found == sorted(expected)


def test_select_composes_on_the_command_line(tmp_path: Path, sample_path: Path):
    from click.testing import CliRunner

    from kvbench.cli.root import root
    from kvbench.plugins import load_registry

    def run(*words: str):
        return CliRunner().invoke(
            root, ["trace", "select", str(sample_path), *words], obj=load_registry(autoload=False)
        )

    out = str(tmp_path / "o.arrow")
    done = run("--from", "1min", "--sample", "0.5", "--scale-rate", "2", "--repeat", "2", "--start", "0s", "-o", out)
    assert done.exit_code == 0, done.output
    assert "capacity factor 0.5" in done.output
    arrivals = pa.Table.from_batches(list(open_trace(out).batches()))["arrival_ns"].to_pylist()
    assert arrivals[0] == 0
    assert arrivals == sorted(arrivals)
    assert "--seed has no effect without --sample" in str(run("--seed", "1", "-o", out).exception)
    assert "write FIRST:LAST" in str(run("--rows", "5", "-o", out).exception)
