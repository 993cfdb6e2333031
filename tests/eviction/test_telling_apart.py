"""Sample traces on which policies that are easily taken for one another count differently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from oracle import oracle_hits, write_oracle_file
from policies import hits

TESTS = Path(__file__).parents[1]
TRACES = TESTS.parent / "traces"
PEERS = {"sieve": "Sieve", "lfu": "LFU", "lru-k": "LRUK"}


def table_of(path):
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


@pytest.fixture(scope="module", params=["chat", "zipf"])
def sample(request, tmp_path_factory):
    """Name, ids, offsets and libCacheSim's file of a shipped trace."""
    lists = table_of(TRACES / f"{request.param}.arrow")["block_ids"].combine_chunks()
    ids = lists.values.to_numpy()
    file = write_oracle_file(ids, tmp_path_factory.mktemp("samples") / "sample.bin")
    return request.param, ids, lists.offsets.to_numpy().astype(np.int64), file


TELLING = {"chat": (100,), "zipf": (10, 50, 100, 200)}
"""Capacities at which SIEVE and LFU differ; on chat there is hardly another."""


def test_sieve_and_lfu_differ_on_a_sample_as_they_do_in_libcachesim(sample):
    name, ids, offsets, file = sample
    for capacity in TELLING[name]:
        counts = {policy: hits(policy, ids, capacity, offsets) for policy in PEERS}
        assert counts == {policy: oracle_hits(peer, file, capacity) for policy, peer in PEERS.items()}
        assert counts["sieve"] != counts["lfu"], capacity


def test_the_zipf_sample_is_made_by_the_script_its_readme_names(tmp_path):
    script = (TRACES / "README.md").read_text().split("```python\n")[1].split("```")[0]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, check=True)
    assert table_of(tmp_path / "zipf.arrow").equals(table_of(TRACES / "zipf.arrow"), check_metadata=True)
