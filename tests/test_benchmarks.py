"""The benchmark suite runs: every benchmark once, over next to no data."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

TESTS = Path(__file__).parent
MODULES = sorted(path.stem for path in (TESTS / "benchmarks").glob("bench_*.py"))
KINDS = ("time_", "timeraw_", "track_", "mem_", "peakmem_")
SCALE = "0.002"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``benchmarks`` can be imported, as under asv, and makes little data."""
    monkeypatch.setenv("KVBENCH_BENCHMARK_SCALE", SCALE)
    monkeypatch.syspath_prepend(str(TESTS))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("name", MODULES)
def test_benchmarks_run(name: str) -> None:
    """Each benchmark of the module sets up, runs once with every combination of parameters, and cleans up."""
    found = [
        (made, method) for made in classes(importlib.import_module(f"benchmarks.{name}")) for method in methods(made)
    ]
    assert found
    for made, method in found:
        run_benchmark(made, method)


@pytest.mark.usefixtures("suite")
def test_streams_stay_as_they_are() -> None:
    """Frozen: a figure of last year was measured on the same blocks."""
    streams = importlib.import_module("benchmarks.streams")
    zipf, agents = streams.zipf(1_000, 100), streams.agents(100)
    assert (zipf.ids[:10].tolist(), int(zipf.ids.sum())) == ([0, 1, 2, 3, 4, 5, 6, 5, 7, 2], 24_502)
    assert (agents.blocks, int(agents.ids.sum())) == (7_692, 1_628_889)


@pytest.fixture
def peers(suite: None, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The command that measures kvbench against libCacheSim, with small streams."""
    pytest.importorskip("libcachesim")
    module = importlib.import_module("benchmarks.peers")
    monkeypatch.setattr(module, "ZIPF_REQUESTS", 5_000)
    monkeypatch.setattr(module, "ZIPF_OBJECTS", 1_000)
    return module


def test_peers_count_the_same_hits(peers: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """LRU of both over the same blocks, at both capacities."""
    assert peers.main(["--streams", "zipf-1,zipf-10", "--runs", "2", "--json"]) == 0
    duels = json.loads(capsys.readouterr().out)["duels"]
    assert [(duel["stream"], duel["capacity"], len(duel["peer"])) for duel in duels] == [
        ("zipf-1", 10, 2),
        ("zipf-10", 100, 2),
    ]
    assert all(duel["hits_agree"] and duel["peer_hits"] > 0 for duel in duels)


def test_peers_that_disagree_are_an_error(
    peers: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A speed means nothing where the numbers differ."""
    monkeypatch.setattr(peers, "peer_replay", lambda file, capacity, requests: (7, 1.0))
    assert peers.main(["--streams", "zipf-1", "--runs", "1"]) == 1
    assert "hits differ: libCacheSim counts 7" in capsys.readouterr().out


def test_peers_leave_out_a_trace_that_is_not_there(
    peers: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And say so."""
    assert peers.main(["--streams", "weka", "--shared", str(tmp_path)]) == 0
    assert "weka is left out" in capsys.readouterr().err


@pytest.mark.usefixtures("suite")
def test_a_stack_hits_in_its_first_tier_what_one_tier_hits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that measures stacks says so, and fails where it does not hold."""
    module = importlib.import_module("benchmarks.tier_stack")
    monkeypatch.setattr(module, "AGENT_REQUESTS", 100)
    monkeypatch.setattr(module, "CAPACITIES", (100, 300, 900))
    command = ["--runs", "1", "--shared", str(tmp_path), "--json"]
    assert module.main(command) == 0
    pairs = json.loads(capsys.readouterr().out)
    assert [pair["placement"] for pair in pairs] == ["inclusive", "exclusive"]
    assert all(pair["agrees"] and min(pair["tier_hits"]) > 0 for pair in pairs)
    monkeypatch.setattr(module, "replay", lambda *_, **__: ({"hit_blocks": -1}, 1.0))
    assert module.main(command) == 1


@pytest.mark.usefixtures("suite")
def test_hashing_and_hashlib_make_the_same_chain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that measures hash algorithms says so, and fails where it does not hold."""
    module = importlib.import_module("benchmarks.hashing_peers")
    command = ["--algorithms", "blake3,vllm-xxhash", "--runs", "1", "--json"]
    assert module.main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["digests_agree"]
    assert {"blake3", "vllm-xxhash", "hashlib view"} < set(found["chunks_per_s"])
    monkeypatch.setitem(module.PEERS, "view", module.unchained)
    assert module.main(command) == 1


@pytest.mark.usefixtures("suite")
def test_timed_replays_stand_beside_a_peer_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that measures them prints the ratio, or why there is none."""
    module = importlib.import_module("benchmarks.timed_peers")
    row = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({**row, "timestamp": 1_000 * at}) + "\n" for at in range(4)))
    command = ["--trace", str(trace), "--runs", "1"]
    assert module.main([*command, "--json", "--peer-python", sys.executable]) == 0
    printed = capsys.readouterr()
    assert all(duel["kvbench"]["requests"] == 4 for duel in json.loads(printed.out).values())
    found = json.loads(printed.out)["round-robin"]["kvbench"]
    monkeypatch.setattr(module, "missing_peer", lambda _: None)
    monkeypatch.setattr(module, "peer_replay", lambda *_: {**found, "cpu_s": 2 * found["cpu_s"]})
    assert module.main(command) == 0
    assert "Dynamo  kv_router" in capsys.readouterr().out
    assert module.main(["--trace", str(tmp_path / "none")]) == 0
    assert "nothing to replay" in capsys.readouterr().err


def classes(module: ModuleType) -> list[type[Any]]:
    return [made for _, made in inspect.getmembers(module, inspect.isclass) if methods(made)]


def methods(made: type[Any]) -> list[str]:
    return [name for name in dir(made) if name.startswith(KINDS)]


def run_benchmark(made: type[Any], method: str) -> None:
    """Run one method with every combination of its class's parameters, as asv does."""
    params = getattr(made, "params", [])
    lists = params if params and isinstance(params[0], list | tuple) else [params] if params else []
    for values in itertools.product(*lists):
        benchmark = made()
        if hasattr(benchmark, "setup"):
            benchmark.setup(*values)
        result = getattr(benchmark, method)(*values)
        if method.startswith("timeraw_"):
            subprocess.run([sys.executable, "-c", result], check=True)
        elif method.startswith("track_"):
            assert result >= 0
        if hasattr(benchmark, "teardown"):
            benchmark.teardown(*values)


@pytest.mark.usefixtures("suite")
def test_the_import_is_measured_beside_msgspec(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module("benchmarks.import_peers")
    monkeypatch.setattr(module, "peak_bytes", lambda source, output: source.stat().st_size)
    assert module.main(["--rows", "50", "--times", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {"dense", "any", "turns", "sorted", "shuffled"}
    assert all(figure > 0 for figures_of in figures.values() for figure in figures_of.values())
