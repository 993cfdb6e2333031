"""The executor ``local``: processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any

from kvbench.plugins import load_registry
from kvbench.sweeps.cell import CellRunner
from kvbench.sweeps.executor import CellOutcome, CellTask, Executor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.process import BaseProcess

AHEAD = 2
"""Cells that are handed out for each process, so that none waits for its next one."""

_runner: CellRunner | None = None
"""Of a worker process, which keeps parts and trace from cell to cell; None in all others."""


class LocalExecutor(Executor):
    """Runs cells in processes of this machine, each of which maps the trace into memory for itself.

    ``processes``  0: as many as there are cores.
    ``retries``    how often a cell is tried again whose process died, as one does that the system ends for want of
                   memory; once at least where it may have died of another cell.

    Processes are started anew, not forked, so a program that uses this needs the usual
    ``if __name__ == "__main__":``.
    """

    def __init__(self, *, processes: int = 0, retries: int = 2) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._retries = retries

    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        waiting = deque(tasks)
        while waiting:
            suspects: list[CellTask] = []
            yield from _run_pool(waiting, min(self._processes, len(waiting)), suspects)
            # Of several cells it is not known which one ended the process: each is tried once more at least.
            tries = max(self._retries, int(len(suspects) > 1))
            for task in suspects:
                yield _run_alone(task, tries)


def _run_alone(task: CellTask, tries: int) -> CellOutcome:
    """Try a cell again whose process may have died of it; alone, so that no other cell is to blame."""
    for _ in range(tries):
        found = list(_run_pool(deque([task]), 1, []))
        if found:
            return found[0]
    again = f", and again when the cell was tried {tries:,} more time{'' if tries == 1 else 's'}" if tries else ""
    return CellOutcome.failed(task, f"its process died{again}; it may need more memory than there is")


def _run_pool(waiting: deque[CellTask], processes: int, suspects: list[CellTask]) -> Iterator[CellOutcome]:
    """Run what is ``waiting`` until all is done or a process dies; then what was handed out is in ``suspects``."""
    if not waiting:
        return
    context = _Processes()
    pool = ProcessPoolExecutor(processes, context, initializer=_start, initargs=(waiting[0].autoload,))
    running: dict[Future[CellOutcome], CellTask] = {}
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD * processes:
                running[pool.submit(_run, waiting[0])] = waiting[0]
                waiting.popleft()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                outcome = future.result()
                del running[future]
                yield outcome
    except BrokenProcessPool:
        suspects += sorted(running.values(), key=lambda task: task.number)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if running:
            context.end()
        pool.shutdown()


class _Processes(SpawnContext):
    """Starts processes, and knows which."""

    def __init__(self) -> None:
        super().__init__()
        self._started: list[BaseProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> BaseProcess:  # type: ignore[override]
        process = SpawnContext.Process(*args, **kwargs)
        self._started.append(process)
        return process

    def end(self) -> None:
        """End those that still run: nobody waits for their cells."""
        for process in self._started:
            if process.is_alive():
                process.kill()


def _start(autoload: bool) -> None:
    """Make a process ready for cells."""
    global _runner
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; who started this one ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _runner = CellRunner(load_registry(autoload=autoload))


def _end_with_parent() -> None:
    """End when the process that hands out cells is gone, which would otherwise leave this one waiting for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(task: CellTask) -> CellOutcome:
    assert _runner is not None
    return _runner.run(task)
