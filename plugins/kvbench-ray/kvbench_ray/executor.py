"""Hands the cells of a sweep to Ray and gathers what comes back."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kvbench.sweeps.executor import CellOutcome, Executor
from kvbench_ray.cluster import connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    import ray

    from kvbench.sweeps.executor import CellTask

    Stored: TypeAlias = ray.ObjectRef[pa.Buffer]

WAITING = 2
"""Cells handed to Ray for each that it has room for: one runs, one waits. The rest stay here, however many."""


class RayExecutor(Executor):
    """Cells as tasks of Ray.

    ``address``    of the cluster to join: ``HOST:PORT`` or ``auto``; None: a Ray is started on this machine.
    ``trace``      ``path``: each node reads the file; ``object``: its bytes are put into the object store once.
    ``retries``    how often a cell is tried again when its worker is lost.
    ``cpus``       that a cell takes up.
    ``processes``  CPUs of a Ray that is started; 0: as many as the machine has.
    """

    def __init__(
        self, address: str | None = None, trace: str = "path", retries: int = 2, cpus: float = 1.0, processes: int = 0
    ) -> None:
        self._address = address
        self._sends_trace = trace == "object"
        self._retries = retries
        self._cpus = cpus
        self._processes = processes

    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        """As :meth:`Executor.run`. Raises ConfigError and PluginError where the cluster is not fit for the sweep."""
        if not tasks:
            return
        # A trace that cannot be read here is left to the cells, which say so.
        traces = sorted({trace for task in tasks if (trace := _trace_of(task)) is not None and Path(trace).is_file()})
        sent = traces if self._sends_trace else []
        with connected(self._address, self._processes, sum(Path(trace).stat().st_size for trace in sent)):
            from kvbench_ray.nodes import check_nodes

            seen = [os.path.abspath(trace) for trace in traces if not self._sends_trace]
            check_nodes(seen, self._cpus, plugins=any(task.autoload for task in tasks))
            yield from self._gather(tasks, {trace: _put(trace) for trace in sent})

    def _gather(self, tasks: Sequence[CellTask], stored: Mapping[str | None, Stored]) -> Iterator[CellOutcome]:
        """The outcomes as they come in. ``stored`` has the bytes of traces that are sent."""
        import ray

        from kvbench_ray.cell import run_there
        from kvbench_ray.nodes import cells_at_once

        cell = ray.remote(run_there).options(num_cpus=self._cpus, max_retries=self._retries)
        folder = str(Path.cwd())
        waiting = iter(tasks)
        running: dict[ray.ObjectRef[CellOutcome], CellTask] = {}
        try:
            while True:
                # Asked each time: nodes come and go.
                room = max(1, WAITING * cells_at_once(self._cpus)) - len(running)
                for task in islice(waiting, max(0, room)):
                    running[cell.remote(task, folder, stored.get(_trace_of(task)))] = task
                if not running:
                    return
                (done,), _ = ray.wait(list(running), num_returns=1)
                yield self._outcome(done, running.pop(done))
        finally:
            for ref in running:
                ray.cancel(ref, force=True)

    def _outcome(self, done: ray.ObjectRef[CellOutcome], task: CellTask) -> CellOutcome:
        import ray

        try:
            outcome: CellOutcome = ray.get(done)
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
            tries = self._retries + 1
            lost = "its worker was lost" if tries == 1 else f"its worker was lost {tries} times"
            return CellOutcome.failed(task, f"{lost} (executor ray, retries = {self._retries}): {_first_line(error)}")
        except ray.exceptions.RayTaskError as error:
            return CellOutcome.failed(task, f"executor ray: {_first_line(error.cause)}")
        except ray.exceptions.RayError as error:
            return CellOutcome.failed(task, f"executor ray: {_first_line(error)}")
        return outcome


def _first_line(error: BaseException) -> str:
    """The kind of an error and what it says first; Ray goes on with addresses, traces and advice."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _trace_of(task: CellTask) -> str | None:
    """The trace file that the settings of a task name; None where they name none."""
    trace: Any = task.settings.get("trace")
    return trace if isinstance(trace, str) else None


def _put(trace: str) -> Stored:
    """The bytes of a file in the object store."""
    import pyarrow as pa
    import ray

    with pa.memory_map(trace) as file:
        return ray.put(file.read_buffer())
