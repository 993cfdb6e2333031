"""``kvbench events fold``: the log of a run leads to what the run says is resident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from conftest import Cli, Run

STACKS = {
    "plain": ["--capacity", "300"],
    "inclusive": ["--tier", "gpu,capacity=60", "--tier", "cpu,capacity=400"],
    "exclusive": ["--tier", "gpu,capacity=60", "--tier", "cpu,capacity=400", "--placement", "exclusive"],
    "spill": ["--tier", "gpu,capacity=60,policy=keep", "--tier", "cpu,capacity=400", "--placement", "spill"],
    "shared": ["--tier", "gpu,capacity=60", "--tier", "dfs,capacity=400,scope=cluster,write=back", "--workers", "3"],
    "ranks": ["--tier", "gpu,capacity=60,scope=rank", "--tier", "cpu,capacity=400", "--tp", "2"],
}
KINDS = {
    "plain": {("INSERT", "computed"), ("DELETE", "evicted")},
    "inclusive": {("INSERT", "computed"), ("COPY", "promoted"), ("DELETE", "evicted")},
    "exclusive": {("INSERT", "computed"), ("MOVE", "promoted"), ("MOVE", "demoted"), ("DELETE", "evicted")},
    "spill": {("INSERT", "computed"), ("DELETE", "evicted")},
    "shared": {("INSERT", "computed"), ("COPY", "promoted"), ("MOVE", "demoted"), ("DELETE", "evicted")},
    "ranks": {("INSERT", "computed"), ("COPY", "promoted"), ("DELETE", "evicted")},
}


def run(cli: Cli, sample: Path, stack: str, *options: str) -> dict[str, Any]:
    """Replay the sample, with its log in events.parquet; returns the summary."""
    done = cli("replay", sample, *STACKS[stack], "--events", "events.parquet", "--json", *options)
    assert done.code == 0, done.err
    summary = json.loads(done.out)["summary"]
    assert isinstance(summary, dict)
    return summary


def fold(cli: Cli, *options: str) -> dict[str, Any]:
    done = cli("events", "fold", "events.parquet", "--json", *options)
    assert done.code == 0, done.err
    folded = json.loads(done.out)
    assert isinstance(folded, dict)
    return folded


@pytest.mark.parametrize("stack", STACKS)
def test_the_log_folds_to_what_is_resident(cli: Cli, tmp_path: Path, sample: Path, stack: str) -> None:
    summary = run(cli, sample, stack)
    folded = fold(cli, "-o", "state.parquet")
    log = pq.read_table(tmp_path / "events.parquet")
    assert (folded["events"], folded["requests"]) == (log.num_rows, max(log["request"].to_pylist()) + 1)
    told: dict[str, int] = {}
    for place in folded["places"]:
        told[place["tier"]] = told.get(place["tier"], 0) + place["blocks"]
    if stack == "plain":
        assert list(told.values()) == [summary["blocks"]["resident_at_end"]]
    else:
        assert told == {tier["tier"]: tier["used_blocks"] for tier in summary["tiers"]}
        stores = {tier["tier"]: tier["stores"] for tier in summary["tiers"]}
        assert {name: sum(place["tier"] == name for place in folded["places"]) for name in stores} == stores
        places = [(place["tier"], place["store"]) for place in folded["places"]]
        assert places == [(name, store) for name, count in stores.items() for store in range(count)]
    state = pq.read_table(tmp_path / "state.parquet")
    assert state.num_rows == sum(told.values())
    assert state.group_by(["tier", "store", "key"]).aggregate([]).num_rows == state.num_rows


@pytest.mark.parametrize("stack", STACKS)
def test_every_worker_counts_its_events_and_says_what_happened_and_why(
    cli: Cli, tmp_path: Path, sample: Path, stack: str
) -> None:
    run(cli, sample, stack)
    rows = pq.read_table(tmp_path / "events.parquet").to_pylist()
    following: dict[int, int] = {}
    for row in rows:
        assert row["sequence"] == following.get(row["worker"], 0)
        following[row["worker"]] = row["sequence"] + 1
        assert (row["source_tier"] is None) == (row["kind"] not in ("MOVE", "COPY"))
        assert (row["source_store"] is None) == (row["source_tier"] is None)
        assert row["parent"] is None or row["kind"] != "DELETE"
    assert len(following) == (3 if stack == "shared" else 1)
    assert {(row["kind"], row["reason"]) for row in rows} == KINDS[stack]
    assert [row["request"] for row in rows] == sorted(row["request"] for row in rows)


def test_a_restart_a_fault_and_a_watermark_are_in_the_log(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "faults.toml").write_text(
        '[[fault]]\nkind = "get"\ntier = "cpu"\nshare = 0.2\n'
        '[[fault]]\nkind = "restart"\ntier = "gpu"\nfrom_request = 1_000\n'
    )
    tiers = ["--tier", "gpu,capacity=60,high=0.9,low=0.5", "--tier", "cpu,capacity=400"]
    done = cli("replay", sample, *tiers, "--faults", "faults.toml", "--events", "events.parquet", "--json")
    assert done.code == 0, done.err
    rows = pq.read_table(tmp_path / "events.parquet").to_pylist()
    kinds = {(row["kind"], row["reason"], row["tier"]) for row in rows}
    assert {("DELETE", "watermark", "gpu"), ("DELETE", "fault", "cpu"), ("CLEAR", "restart", "gpu")} <= kinds
    clears = [row for row in rows if row["kind"] == "CLEAR"]
    assert [(row["request"], row["store"], row["parent"], row["source_tier"]) for row in clears] == [
        (1_000, 0, None, None)
    ]
    used = {tier["tier"]: tier["used_blocks"] for tier in json.loads(done.out)["summary"]["tiers"]}
    assert {place["tier"]: place["blocks"] for place in fold(cli)["places"]} == used


@pytest.mark.parametrize("stack", ["inclusive", "exclusive", "shared"])
def test_the_first_requests_fold_to_what_a_shorter_run_leaves(
    cli: Cli, tmp_path: Path, sample: Path, stack: str
) -> None:
    run(cli, sample, stack)
    with pa.memory_map(str(sample)) as source:
        table = pa.ipc.open_file(source).read_all().slice(0, 700)
    with pa.OSFile(str(tmp_path / "short.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert cli("events", "fold", "events.parquet", "--until", "700", "-o", "state.parquet").code == 0
    shorter = cli("replay", "short.arrow", *STACKS[stack], "--events", "short.parquet")
    assert shorter.code == 0, shorter.err
    assert cli("events", "fold", "short.parquet", "-o", "short_state.parquet").code == 0
    keys = [("tier", "ascending"), ("store", "ascending"), ("key", "ascending")]
    states = [
        pq.read_table(tmp_path / name).sort_by(keys).to_pylist() for name in ("state.parquet", "short_state.parquet")
    ]
    assert states[0] == states[1]


def test_no_request_folds_to_nothing(cli: Cli, sample: Path) -> None:
    run(cli, sample, "exclusive")
    assert fold(cli, "--until", "0") == {"events": 0, "requests": 0, "places": []}
    text = cli("events", "fold", "events.parquet")
    assert text.code == 0
    assert "resident blocks" in text.out


# -- logs that are none ----------------------------------------------------------------------------


def refused(done: Run, *parts: str) -> None:
    assert done.code == 2, done
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert done.out == ""
    for part in ("error: bad.parquet: ", *parts):
        assert part in lines[0]


def _changed(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


BROKEN: dict[str, tuple[Any, str]] = {
    "a row is missing": (
        lambda log: pa.concat_tables([log.slice(0, 100), log.slice(101)]),
        "worker 0: event 101 follows event 99: events are missing",
    ),
    "the first row is missing": (lambda log: log.slice(1), "worker 0: event 1 is the first: events are missing"),
    "a row is there twice": (
        lambda log: pa.concat_tables([log.slice(0, 3), log.slice(2)]),
        "worker 0: event 2 follows event 2: a row is doubled, or out of order",
    ),
    "a move from no place": (
        lambda log: _changed(log, "kind", pa.array(["MOVE"] * len(log))),
        "event 0 of worker 0: MOVE from no place",
    ),
    "a column is missing": (lambda log: log.drop(["kind"]), "no column 'kind'"),
    "another table": (lambda log: pa.table({"a": [1]}), "no column 'request'"),
    "no such kind": (lambda log: _changed(log, "kind", pa.array(["MELT"] * len(log))), "'MELT' is no kind of event"),
    "another type": (
        lambda log: _changed(log, "key", pa.array(["x"] * len(log))),
        "column 'key' is string, not uint64",
    ),
    "a null": (lambda log: _changed(log, "request", pa.nulls(len(log), pa.int64())), "column 'request' has nulls"),
    "a block that is there": (
        lambda log: _changed(log, "key", pa.array([7] * len(log), pa.uint64())),
        "INSERT of key 7, which is in store 0 of tier gpu already",
    ),
    "a block that is not there": (
        lambda log: _changed(log, "kind", pa.array(["DELETE"] * len(log))),
        "event 0 of worker 0: DELETE of key",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_that_contradicts_itself_is_one_clear_error(cli: Cli, tmp_path: Path, sample: Path, name: str) -> None:
    run(cli, sample, "exclusive")
    change, says = BROKEN[name]
    pq.write_table(change(pq.read_table(tmp_path / "events.parquet")), tmp_path / "bad.parquet")
    refused(cli("events", "fold", "bad.parquet", "-o", "state.parquet"), says)
    assert not (tmp_path / "state.parquet").exists()
    (tmp_path / "state.parquet").write_text("kept")
    before = cli("events", "fold", "bad.parquet", "-o", "state.parquet")
    assert "error: state.parquet exists" in before.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no Parquet file that can be read; kvbench replay --events"),
        (b"not Parquet" * 20, "is no Parquet file"),
        (b"PAR1" + b"\0" * 40 + b"PAR1", "cannot be read: "),
        (None, "cannot be read: "),
    ],
)
def test_a_file_that_is_no_log_is_one_clear_error(cli: Cli, tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "bad.parquet").write_bytes(content)
    refused(cli("events", "fold", "bad.parquet"), says)


def test_a_log_without_rows_folds_to_nothing(cli: Cli, tmp_path: Path, sample: Path) -> None:
    run(cli, sample, "exclusive")
    log = pq.read_table(tmp_path / "events.parquet")
    pq.write_table(log.slice(0, 0), tmp_path / "events.parquet")
    assert fold(cli, "-o", "state.parquet")["places"] == []
    assert pq.read_table(tmp_path / "state.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--until", "-1"], "--until"),
        (["--force"], "--force has no effect without --output"),
        (["-o", "events.parquet", "--force"], "is the log that is read"),
        (["-o", "./link", "--force"], "is the log that is read"),
        (["-o", "none/state.parquet"], "cannot be written"),
        (["-o", "kept.parquet"], "kept.parquet exists; give --force"),
    ],
)
def test_a_bad_option_is_one_clear_error(cli: Cli, tmp_path: Path, sample: Path, options: list[str], says: str) -> None:
    run(cli, sample, "spill")
    log = (tmp_path / "events.parquet").read_bytes()
    (tmp_path / "link").symlink_to("events.parquet")
    (tmp_path / "kept.parquet").write_text("precious")
    done = cli("events", "fold", "events.parquet", *options)
    assert done.code == 2
    assert says in done.err.splitlines()[-1]
    assert (tmp_path / "events.parquet").read_bytes() == log
    assert (tmp_path / "kept.parquet").read_text() == "precious"
