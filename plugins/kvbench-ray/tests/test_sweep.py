"""``kvbench sweep`` on Ray and on local processes: the same bytes, whatever becomes of a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from material import CHAT, commands, install, wait_for

GRIM = """
import os, signal
from pathlib import Path
import kvbench
from kvbench.eviction.lru import Lru

def make(context, end):
    mark = Path(os.environ["GRIM_MARK"])
    if end == "error":
        raise RuntimeError("no policy today")
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return Lru(context)

@kvbench.hookimpl
def kvbench_eviction_policies():
    end = kvbench.Param("end", str, "error", "error, or death the first time", choices=("error", "death"))
    yield kvbench.EvictionPolicySpec("grim", make, "raises, or kills its process", params=(end,))
"""


def sweep(folder: Path, executor: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs ``kvbench sweep`` over a few capacities of the sample, into ``EXECUTOR.parquet``."""
    given = ("--capacity", "1%..10%:4", *arguments, "--executor", executor, "-o", f"{executor.split(',')[0]}.parquet")
    return subprocess.run(
        [sys.executable, "-m", "kvbench", "sweep", str(CHAT), *given],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_killed_worker_and_a_failing_cell_give_the_bytes_of_local_processes(
    tmp_path: Path, short_folder: Path
) -> None:
    install(tmp_path, "grim", "1.0", "[kvbench]\ngrim = grim\n")
    (tmp_path / "grim.py").write_text(GRIM)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    policies = ("--policy", "arc", "--policy", "grim,end=error", "--policy", "grim,end=death")
    for name in ("local", "ray"):
        mark = tmp_path / f"{name}.pid"
        env = {"PYTHONPATH": path, "GRIM_MARK": str(mark), "RAY_TMPDIR": str(short_folder)}
        done = sweep(tmp_path, f"{name},processes=2", *policies, **env)
        assert done.returncode == 1, done.stderr
        assert done.stderr.count("RuntimeError: no policy today\n") == done.stderr.count("\n") == 4
        assert mark.exists()
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()


def test_a_cluster_that_is_joined_gives_the_bytes_of_local_processes(cluster: Any, tmp_path: Path) -> None:
    for executor in ("local", f"ray,address={cluster.address},trace=object,cpus=0.5,retries=0"):
        done = sweep(tmp_path, executor, "--policy", "arc", "--policy", "lru", "--method", "replay")
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()


def test_a_sweep_that_is_terminated_while_ray_starts_says_so_and_leaves_nothing(
    tmp_path: Path, short_folder: Path
) -> None:
    folder = short_folder / "early"
    command = [sys.executable, "-m", "kvbench", "sweep", str(CHAT), "--policy", "arc", "--executor", "ray,processes=1"]
    env = {**os.environ, "RAY_TMPDIR": str(folder)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as begun:
        wait_for(lambda: list(folder.glob("ray/session_*/logs/gcs_server*")))
        begun.terminate()
        _, said = begun.communicate(timeout=60)
    assert (begun.returncode, said) == (143, "error: terminated; nothing was written\n")
    wait_for(lambda: not any(str(folder) in command for command in commands()))


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        ("ray,address=127.0.0.1:1", "executor ray: address = '127.0.0.1:1' cannot be joined: ConnectionRefusedError"),
        ("ray,trace=pigeon", "executor ray: parameter trace = 'pigeon' is not one of path, object"),
    ],
)
def test_what_is_wrong_is_said_on_one_line(tmp_path: Path, executor: str, said: str) -> None:
    done = sweep(tmp_path, executor, "--policy", "arc")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1
