"""What may go wrong on a cluster, and what it does to the cells."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from material import CHAT, OnlyHere, in_order, install, reader, tasks

from kvbench.errors import ConfigError, PluginError
from kvbench.sweeps.cell import run_cell
from kvbench.sweeps.executor import CellOutcome, CellTask
from kvbench_ray.executor import RayExecutor


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A trace that a worker waits for until the test gives it one."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("only /proc tells who has opened a file")
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def kill_then_feed(pipe: Path, kills: int, *, feed: bool) -> None:
    """Kills so many workers that wait for the trace, one after another; gives the next one the sample."""
    table = pa.ipc.open_file(CHAT).read_all()
    gone = {os.getpid()}
    with pipe.open("wb") as file:
        for _ in range(kills):
            worker = reader(pipe, gone)
            os.kill(worker, signal.SIGKILL)
            gone.add(worker)
        if feed:
            reader(pipe, gone)
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)


def run_with_kills(executor: RayExecutor, pipe: Path, kills: int, *, feed: bool) -> tuple[CellOutcome, CellOutcome]:
    """The outcome of a cell whose worker is killed, and what it is where nothing happens. Other cells are as ever."""
    cells = tasks(6)
    helper = threading.Thread(target=kill_then_feed, args=(pipe, kills), kwargs={"feed": feed})
    helper.start()
    killed, *rest = in_order(executor.run([*tasks(1, pipe), *cells[1:]]))
    helper.join()
    undisturbed, *same = in_order(map(run_cell, cells))
    assert rest == same
    return killed, undisturbed


def test_a_killed_worker_costs_a_retry_and_not_the_sweep(connection: Any, pipe: Path) -> None:
    killed, undisturbed = run_with_kills(RayExecutor(retries=2), pipe, 2, feed=True)
    assert (killed.status, killed.error) == ("done", None)
    assert killed.summary is not None
    assert undisturbed.summary is not None
    assert killed.summary["rates"] == undisturbed.summary["rates"]


@pytest.mark.parametrize(("retries", "said"), [(0, "its worker was lost "), (1, "its worker was lost 2 times ")])
def test_a_cell_whose_worker_is_lost_too_often_has_failed(connection: Any, pipe: Path, retries: int, said: str) -> None:
    killed, _ = run_with_kills(RayExecutor(retries=retries), pipe, retries + 1, feed=False)
    assert killed.status == "failed"
    assert killed.error is not None
    assert killed.error.startswith(f"{said}(executor ray, retries = {retries})")


def test_a_cell_that_cannot_be_read_there_has_failed(connection: Any) -> None:
    good = tasks(2)
    bad = CellTask(number=2, settings={**good[0].settings, "policy": OnlyHere()}, autoload=False)
    *rest, failed = in_order(RayExecutor().run([*good, bad]))
    assert rest == in_order(map(run_cell, good))
    assert failed.error == "executor ray: RaySystemError: System error: No module named 'material'"


def test_cells_wait_here_until_there_is_room(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[int] = []
    wait = ray.wait
    monkeypatch.setattr(ray, "wait", lambda refs, **how: handed.append(len(refs)) or wait(refs, **how))
    for cpus, room in ((1.0, 2), (0.5, 4)):
        handed.clear()
        outcomes = RayExecutor(cpus=cpus).run(tasks(20))
        assert len(list(outcomes)) == 20
        assert max(handed) == 2 * room


def test_more_cpus_than_a_node_has_are_refused(connection: Any) -> None:
    with pytest.raises(ConfigError, match="cpus = 2: no node has as many; the largest has 1"):
        next(iter(RayExecutor(cpus=2.0).run(tasks(1))))


def test_a_trace_that_a_node_does_not_see_is_sent_to_it(connection: Any) -> None:
    """Of an open file, /proc/self/fd/900 is a name in this process only."""
    with CHAT.open("rb") as file:
        os.dup2(file.fileno(), 900)
    try:
        cells = tasks(3, "/proc/self/fd/900")
        with pytest.raises(ConfigError, match=r"has no file /proc/self/fd/900; .*trace=object"):
            next(iter(RayExecutor().run(cells)))
        assert in_order(RayExecutor(trace="object").run(cells)) == in_order(map(run_cell, cells))
    finally:
        os.close(900)


@pytest.fixture
def odd_node(connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Adds a node where what is in ``tmp_path`` goes before what is installed."""
    added: list[Any] = []

    def add() -> None:
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
            added.append(connection.add_node(num_cpus=1, object_store_memory=80 << 20))

    yield add
    for node in added:
        connection.remove_node(node)


def test_a_node_with_another_kvbench_is_named(connection: Any, odd_node: Callable[[], None], tmp_path: Path) -> None:
    install(tmp_path, "kvbench", "9.9")
    odd_node()
    with pytest.raises(PluginError, match=r"node [0-9.]+ has kvbench 9\.9; install"):
        next(iter(RayExecutor().run(tasks(1))))


def test_a_node_that_cannot_run_cells_is_named(connection: Any, odd_node: Callable[[], None], tmp_path: Path) -> None:
    (tmp_path / "kvbench_ray.py").write_text("raise ImportError('not this one')")
    odd_node()
    with pytest.raises(PluginError, match=r"node [0-9.]+ cannot run cells: ImportError: not this one"):
        next(iter(RayExecutor().run(tasks(1))))


def test_a_plugin_that_the_nodes_lack_is_named_where_plugins_count(
    connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "kvbench-mine", "1.0", "[kvbench]\nmine = kvbench_mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    executor = RayExecutor()
    with pytest.raises(PluginError, match=r"has no kvbench-mine; install kvbench-mine 1\.0 there"):
        next(iter(executor.run(tasks(1, autoload=True))))
    assert len(list(executor.run(tasks(1)))) == 1
