"""A sweep from plan to table: equal bytes wherever and however often it runs, and figures equal to a replay's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.errors import ConfigError, OutputError
from kvbench.plugins import Distribution, load_registry
from kvbench.sweeps.executor import CellOutcome
from kvbench.sweeps.file import read_sweep
from kvbench.sweeps.local import LocalExecutor
from kvbench.sweeps.plan import make_plan
from kvbench.sweeps.result import SweepCell, SweepResult
from kvbench.sweeps.run import run_sweep
from tests.sweeps.runs import BUILT_IN, CHAT, Told, run

MIXED = {"capacity": "1%,10%,700", "policy": ["lru", "arc"]}


def test_each_cell_has_the_figures_of_its_replay_and_a_row_of_its_own():
    result = run({"policy": "arc,sieve", "workers": "1,2"}, capacity=300)
    assert [cell.axes for cell in result.cells] == [
        {"policy": policy, "workers": workers} for policy in ("arc", "sieve") for workers in (1, 2)
    ]
    for cell in result.cells:
        expected = kvbench.replay(CHAT, capacity=300, belady="off", **cell.axes)
        assert json.loads(json.dumps(expected.summary)) == cell.summary
    table = result.table()
    assert table["policy"].to_pylist() == ["arc", "arc", "sieve", "sieve"]
    assert table["workers"].to_pylist() == [1, 2, 1, 2]
    assert table["rates_token"].to_pylist() == [cell.summary["rates"]["token"] for cell in result.cells]
    assert table.schema.field("rates_token").metadata == {
        b"kind": b"figure",
        b"path": b"rates.token",
        b"unit": b"share",
    }
    assert table.schema.field("workers").metadata[b"kind"] == b"setting"
    assert not [name for name in table.schema.names if "each" in name]
    assert [json.loads(text) for text in table["summary"].to_pylist()] == [cell.summary for cell in result.cells]


def test_a_sweep_is_read_back_as_it_was(tmp_path):
    output = str(tmp_path / "sweep.parquet")
    result = run(MIXED | {"workers": [1]}, output=output)
    read = read_sweep(output)
    assert (read.cells, read.manifest) == (result.cells, result.manifest)
    assert not Path(f"{output}.journal").exists()
    assert str(tmp_path) not in repr(pq.read_schema(output).metadata)


def assert_equal_figures(found, expected):
    """Equal, but means over requests to rounding: a curve adds the requests' shares up in another order."""
    assert found.keys() == expected.keys()
    for path, value in found.items():
        assert value == (pytest.approx(expected[path], rel=1e-12) if "mean" in path else expected[path])


@pytest.mark.parametrize("policy", ["lru", None])
@pytest.mark.parametrize("tails", ["drop", "keep"])
@given(capacities=st.lists(st.integers(1, 30_000) | st.sampled_from(["0.5%", "10%", "100%"]), min_size=2, unique=True))
@settings(max_examples=8, deadline=None)
def test_what_the_curve_answers_is_what_replays_say(policy, tails, capacities):
    shared = {"tails": tails} | ({} if policy is None else {"policy": policy})
    curve, replays = (run({"capacity": capacities}, method=method, **shared) for method in ("auto", "replay"))
    for found, expected in zip(curve.cells, replays.cells, strict=True):
        assert (found.method, expected.method) == ("curve", "replay")
        assert found.config_hash == expected.config_hash
        known = found.figures
        assert_equal_figures(known, {path: value for path, value in expected.figures.items() if path in known})
        for name in ("rates", "infinite_rates", "belady_rates"):
            assert found.summary[name].keys() == expected.summary[name].keys()


def test_curves_of_a_real_trace_are_its_replays(mooncake):
    trace = str(mooncake("conversation"))
    curve, replays = (run({"capacity": "1k..100k:4"}, trace=trace, method=method) for method in ("auto", "replay"))
    assert {cell.method for cell in curve.cells} == {"curve"}
    for found, expected in zip(curve.cells, replays.cells, strict=True):
        assert_equal_figures(found.summary["rates"], expected.summary["rates"])


@pytest.mark.parametrize(
    "shared",
    [
        {"belady": "on"},
        {"order": "head-first"},
        {"workers": 2},
        {"recompute": "token"},
        {"seen": "off"},
        {"policy": "lru-k"},
        {"compute": "fixed,prefill_ms_per_token=0.01,decode_ms=1"},
    ],
)
def test_what_a_curve_does_not_know_is_replayed(shared):
    result = run({"capacity": [100, 1000]}, **shared)
    assert [cell.method for cell in result.cells] == ["replay", "replay"]
    assert not result.failed


def test_one_capacity_is_replayed_and_the_bound_is_there_where_it_is_asked_for():
    assert run(capacity=100).cells[0].method == "replay"
    assert run(capacity=100).cells[0].summary["belady_rates"]["token"] is None
    assert run(capacity=100, belady="on").cells[0].summary["belady_rates"]["token"] > 0


def test_a_cell_that_fails_is_a_row_and_the_rest_is_there(tmp_path):
    output = str(tmp_path / "sweep.parquet")
    result = run({"policy": ["arc", "s3-fifo,small=7", "sieve"]}, capacity=100, output=output)
    assert [cell.status for cell in result.cells] == ["done", "failed", "done"]
    assert "small" in result.failed[0].error
    read = read_sweep(output)
    assert read.cells == result.cells
    assert pq.read_table(output)["rates_token"].null_count == 1


def test_a_capacity_that_no_curve_could_have_is_one_failed_row():
    result = run({"capacity": ["1%", "64GiB", "10%"]})
    assert [cell.status for cell in result.cells] == ["done", "failed", "done"]
    assert "--block-bytes" in result.failed[0].error


def test_the_order_in_which_cells_finish_and_the_number_of_processes_leave_no_mark(tmp_path):
    executors = {
        "here": None,
        "backwards": Told(lambda tasks: tasks[::-1]),
        "one": LocalExecutor(processes=1),
        "two": LocalExecutor(processes=2),
    }
    files = {name: tmp_path / f"{name}.parquet" for name in executors}
    for name, executor in executors.items():
        run(MIXED | {"seed": "0..1"}, output=str(files[name]), executor=executor)
    assert len({file.read_bytes() for file in files.values()}) == 1


def test_a_sweep_that_is_interrupted_while_it_writes_its_table_says_that_all_cells_are_kept(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    output = tmp_path / "sweep.parquet"
    monkeypatch.setattr("kvbench.sweeps.run.write_sweep", interrupted)
    with pytest.raises(KeyboardInterrupt) as ended:
        run({"capacity": "100,200", "policy": "arc"}, output=str(output))
    assert "2 cells kept in" in ended.value.__notes__[0]
    monkeypatch.undo()
    assert run({"capacity": "100,200", "policy": "arc"}, output=str(output)).found == 2


def test_an_interrupted_sweep_goes_on_where_it_was_to_the_same_bytes(tmp_path):
    whole, output = tmp_path / "whole.parquet", tmp_path / "sweep.parquet"
    run(MIXED, output=str(whole))
    first = Told(stop_after=2)
    with pytest.raises(KeyboardInterrupt) as ended:
        run(MIXED, output=str(output), executor=first)
    assert "5 cells kept in" in ended.value.__notes__[0]  # two replays, and three of the curve
    journal = Path(f"{output}.journal")
    journal.write_bytes(journal.read_bytes()[:-20])  # as a process that is killed while it writes
    assert not output.exists()
    second = Told()
    result = run(MIXED, output=str(output), executor=second)
    assert (first.ran, second.ran, result.found) == ([1, 3], [3, 5], 4)
    assert output.read_bytes() == whole.read_bytes()
    assert not journal.exists()


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_sweep_of_more_cells_extends_the_file_of_some(tmp_path, suffix):
    output, whole = tmp_path / f"sweep{suffix}", tmp_path / f"whole{suffix}"
    run({"policy": "arc,sieve"}, capacity=100, output=str(output))
    executor = Told()
    result = run({"policy": "lru,sieve,fifo,arc"}, capacity="1k..1k", executor=executor, output=None)
    assert executor.ran == [0, 1, 2, 3]
    executor = Told()
    result = run({"policy": "lru,sieve,fifo,arc"}, capacity=100, executor=executor, output=str(output))
    assert (executor.ran, result.found) == ([0, 2], 2)
    run({"policy": "lru,sieve,fifo,arc"}, capacity=100, output=str(whole))
    assert output.read_bytes() == whole.read_bytes()


def test_a_failed_cell_is_run_again(tmp_path):
    output = str(tmp_path / "sweep.parquet")
    run({"policy": ["arc", "s3-fifo,small=7"]}, capacity=100, output=output)
    again = Told()
    run({"policy": ["arc", "s3-fifo,small=7"]}, capacity=100, output=output, executor=again)
    assert again.ran == [1]


def test_a_file_of_other_cells_is_left_alone_unless_forced(tmp_path):
    output = tmp_path / "sweep.parquet"
    run({"policy": "arc,sieve"}, capacity=100, output=str(output))
    before = output.read_bytes()
    with pytest.raises(OutputError, match="has 1 cell not of this sweep"):
        run({"policy": "sieve"}, capacity=100, output=str(output))
    assert output.read_bytes() == before
    forced = Told()
    run({"policy": "sieve"}, capacity=100, output=str(output), force=True, executor=forced)
    assert (forced.ran, len(read_sweep(output).cells)) == ([0], 1)
    output.write_bytes(Path(CHAT).read_bytes())
    with pytest.raises(OutputError, match="is no sweep"):
        run({"policy": "sieve"}, capacity=100, output=str(output))


def test_a_figure_and_a_setting_of_one_name_are_two_columns():
    cell = SweepCell(0, "", {"a.b": 1}, {}, "done", None, "replay", {"a": {"b": 2}, "settings": 3})
    table = SweepResult({"axes": {"a.b": [1]}}, [cell]).table()
    assert len(set(table.column_names)) == table.num_columns
    assert [table[name].to_pylist() for name in ("a_b", "summary_a_b", "summary_settings")] == [[1], [2], [3]]


def test_an_executor_is_let_go_of_when_a_cell_cannot_be_taken_in():
    class Holds(Told):
        held = True

        def run(self, tasks):
            try:
                yield from super().run(tasks)
            finally:
                self.held = False

    def full(done, cells):
        if done:
            raise OSError("no space left")

    executor = Holds()
    with pytest.raises(OSError, match="no space") as caught:
        run_sweep(make_plan(CHAT, vary={"policy": "arc,sieve"}), BUILT_IN, executor=executor, progress=full)
    assert caught.tb is not None, "the error is still at hand, and with it the frames that it went through"
    assert (executor.ran, executor.held) == ([0], False)


def test_an_outcome_that_its_executor_owes_is_a_failed_cell():
    class Lossy(Told):
        def run(self, tasks):
            yield CellOutcome.failed(tasks[0], "its worker was lost")
            yield CellOutcome.failed(tasks[0], "twice")

    result = run({"policy": "arc,sieve"}, capacity=100, executor=Lossy())
    assert [cell.error for cell in result.cells] == ["its worker was lost", "its executor gave no outcome"]


def test_a_cell_that_read_other_rows_than_the_sweep_is_a_failed_cell():
    class Elsewhere(Told):
        def run(self, tasks):
            for outcome in super().run(tasks):
                manifest = outcome.manifest | {"trace": outcome.manifest["trace"] | {"digest": "blake3:other"}}
                yield msgspec.structs.replace(outcome, manifest=manifest) if outcome.number else outcome

    result = run({"policy": "arc,sieve"}, capacity=100, executor=Elsewhere())
    assert [cell.status for cell in result.cells] == ["done", "failed"]
    assert "has other rows where the cell ran, of digest blake3:other" in result.failed[0].error


def test_one_capacity_that_holds_no_block_leaves_the_others_to_the_curve(tmp_path):
    output = str(tmp_path / "s.parquet")
    result = run({"capacity": "100,0.001%,200,1GiB"}, output=output)
    assert [(cell.method, cell.status) for cell in result.cells] == [
        *(("curve", "done"), ("replay", "failed")),
        *(("curve", "done"), ("replay", "failed")),
    ]
    assert run({"capacity": "100,0.001%,200,1GiB"}, output=output).found == 2


def test_standard_input_and_an_output_over_the_trace_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="reads its trace many times"):
        run(trace="-")
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(Path(CHAT).read_bytes())
    with pytest.raises(OutputError, match="is the trace that is read"):
        run(trace=str(copy), output=str(copy), force=True)
    with pytest.raises(OutputError, match="must end in"):
        run(output=str(tmp_path / "sweep.txt"))


DEADLY = """
import os, pathlib
import kvbench
from kvbench.eviction.lru import Lru


def deadly(context, *, always, mark):
    '''Ends its process, as the system does for want of memory; after the first time only where ``always``.'''
    mark = pathlib.Path(mark)
    if always or not mark.exists():
        mark.write_text("")
        os._exit(137)
    return Lru(context)


@kvbench.hookimpl
def kvbench_eviction_policies():
    params = (kvbench.Param("always", bool, False, ""), kvbench.Param("mark", str, None, ""))
    yield kvbench.EvictionPolicySpec("deadly", deadly, "", params=params, source="")
"""


@pytest.fixture
def deadly(tmp_path, monkeypatch):
    """A plugin, installed for processes that this one starts."""
    (tmp_path / "deadly_plugin.py").write_text(DEADLY)
    info = tmp_path / "deadly_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kvbench]\ndeadly = deadly_plugin\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("deadly_plugin", None)


@pytest.mark.usefixtures("deadly")
@pytest.mark.parametrize(("always", "status", "retries"), [("false", "done", 1), ("true", "failed", 0)])
def test_a_process_that_dies_costs_a_retry_and_then_a_row_and_no_other_cell(tmp_path, always, status, retries):
    policies = ["arc", f"deadly,always={always},mark={tmp_path / 'mark'}", "sieve", "fifo"]
    plan = make_plan(CHAT, settings={"capacity": 100}, vary={"policy": policies})
    registry = load_registry(strict=True)
    result = run_sweep(plan, registry, executor=LocalExecutor(processes=2, retries=retries))
    assert [cell.status for cell in result.cells] == ["done", status, "done", "done"]
    if status == "failed":
        assert "its process died, and again when the cell was tried 1 more time" in result.cells[1].error
    assert result.manifest["plugins"] == {"deadly-plugin": "1.0"}


SLOW_SWEEP = ["sweep", "--policy", "arc", "--policy", "sieve", "--vary", "seed=0..39", "--capacity", "1k,2k"]


def test_a_sweep_that_is_killed_goes_on_to_the_same_bytes_and_leaves_no_process(tmp_path):
    def command(output):
        return [sys.executable, "-m", "kvbench", *SLOW_SWEEP, CHAT, "-o", str(output)]

    environment = {**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1"}
    output, whole = tmp_path / "sweep.parquet", tmp_path / "whole.parquet"
    journal = Path(f"{output}.journal")
    killed = subprocess.Popen(command(output), env=environment, start_new_session=True)
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 5):
        assert killed.poll() is None
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not output.exists()
    known = journal.read_bytes().count(b"\n")
    assert 5 < known < 160
    _wait_for_end_of(killed.pid)
    done = subprocess.run(command(output), env=environment, capture_output=True, check=True)
    assert "cells known from before, and not run again" in done.stdout.decode()
    subprocess.run(command(whole), env=environment, capture_output=True, check=True)
    assert output.read_bytes() == whole.read_bytes()


def _wait_for_end_of(session):
    """Fail unless all processes of a session end within seconds."""
    for _ in range(500):
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("processes are left behind")


def test_an_executor_that_a_plugin_brings_runs_the_cells():
    ran = Told()

    class Plugin:
        @kvbench.hookimpl
        def kvbench_executors(self):
            yield kvbench.ExecutorSpec("told", lambda: ran, "Runs them here.")

    registry = load_registry([(Plugin(), Distribution("told", "1"))], autoload=False)
    result = kvbench.sweep(CHAT, vary={"policy": ["arc", "sieve"]}, capacity=100, executor="told", registry=registry)
    assert (ran.ran, [cell.status for cell in result.cells]) == ([0, 1], ["done", "done"])
