"""A real cluster of two nodes on this machine, started once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

STORE_BYTES = 80 << 20


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """Where Ray keeps its files: short, for the names of sockets that it puts there may have a hundred bytes."""
    folder = tempfile.mkdtemp(prefix="kvb", dir="/tmp")
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(short_folder: Path) -> Iterator[Any]:
    """Two nodes with a CPU each; ``cluster.address`` is where it is joined."""
    node = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", str(short_folder))
        patch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
        from ray.cluster_utils import Cluster

        started = Cluster(initialize_head=True, head_node_args=node)
        started.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        yield started
        started.shutdown()


@pytest.fixture(scope="module")
def connection(cluster: Any, short_folder: Path) -> Iterator[Any]:
    """This program is connected to the cluster, which executors then use."""
    import ray

    # Workers import from the folder of this moment first; kvbench they are to have from where it is installed.
    with chdir(short_folder):
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    assert ray.is_initialized()
    ray.shutdown()
