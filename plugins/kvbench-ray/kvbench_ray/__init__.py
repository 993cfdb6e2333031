"""The executor ``ray``: the cells of a sweep as tasks of a Ray cluster.

    executor.py   hands out the cells, gathers what comes back
    cluster.py    joins a cluster, or starts a Ray on this machine
    nodes.py      what must hold on every node before the first cell
    cell.py       one cell, where a task runs it

Ray is imported when a sweep runs, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import kvbench

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAMS = (
    kvbench.Param(
        "address",
        str,
        None,
        "HOST:PORT of the head of a running cluster, or auto; without it a Ray is started on this machine",
        optional=True,
    ),
    kvbench.Param(
        "trace",
        str,
        "path",
        "path: every node reads the file where it lies here; object: its bytes are sent to the nodes",
        choices=("path", "object"),
    ),
    kvbench.Param(
        "retries", int, 2, "how often a cell is tried again when its worker is lost", minimum=0, maximum=1000
    ),
    kvbench.Param("cpus", float, 1.0, "CPUs that a cell takes up", minimum=0.01, maximum=1e6),
    kvbench.Param(
        "processes",
        int,
        0,
        "CPUs of a Ray that is started; 0: as many as the machine has",
        minimum=0,
        maximum=100_000,
    ),
)


@kvbench.hookimpl
def kvbench_executors() -> Iterator[kvbench.ExecutorSpec]:
    yield kvbench.ExecutorSpec(
        "ray",
        "kvbench_ray.executor:RayExecutor",
        "tasks of a Ray cluster, or of a Ray that is started on this machine",
        params=PARAMS,
        source="ray-project/ray 2.60",
    )
