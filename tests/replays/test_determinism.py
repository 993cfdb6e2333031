"""Equal runs give equal bytes, in any process and from any form of the trace (semantics §11)."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

RUN = """
import sys
import kvbench
trace, folder, seed = sys.argv[1:]
kvbench.replay(
    trace, workers=3, router="random", capacity=40, seed=int(seed),
    output=f"{folder}/requests.parquet", events=f"{folder}/events.parquet",
)
"""


@pytest.fixture(scope="module")
def table(make_trace):
    draw = random.Random(3)
    rows = []
    for _ in range(500):
        leaf = draw.randrange(1, 2**8)
        rows.append([leaf >> up for up in reversed(range(leaf.bit_length()))])
    return make_trace(rows, [draw.randrange(10) for _ in rows])


@pytest.fixture
def run(tmp_path):
    """Replay in a process of its own; returns the bytes of both files."""
    count = 0

    def replay(trace, *, hash_seed="0", seed=7, stdin=None):
        nonlocal count
        count += 1
        folder = tmp_path / f"run{count}"
        folder.mkdir()
        command = [sys.executable, "-c", RUN, str(trace), str(folder), str(seed)]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1"}
        subprocess.run(command, check=True, input=stdin, env=env)
        return (folder / "requests.parquet").read_bytes(), (folder / "events.parquet").read_bytes()

    return replay


@pytest.fixture
def file(table, tmp_path):
    path = tmp_path / "trace.arrow"
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


def test_the_hash_seed_of_python_changes_no_byte(run, file):
    assert run(file, hash_seed="0") == run(file, hash_seed="1")


def test_another_seed_is_another_run(run, file):
    one, other = run(file, seed=1), run(file, seed=2)
    assert one[0] != other[0]
    assert one[1] != other[1]


@pytest.mark.parametrize("rows_per_batch", [500, 7])
def test_file_stream_and_parquet_of_one_trace_give_the_same_bytes(run, file, table, tmp_path, rows_per_batch):
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_per_batch)
    parquet = tmp_path / "trace.parquet"
    pq.write_table(table, parquet, row_group_size=rows_per_batch)
    expected = run(file)
    assert run("-", stdin=stream.getvalue().to_pybytes()) == expected
    assert run(parquet) == expected
