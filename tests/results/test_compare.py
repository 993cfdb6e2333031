"""Runs beside each other: what differs, by how much, and where."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.results.compare import Compared, compare_runs
from kvbench.results.fromrows import summary_of_rows
from kvbench.results.parquet import METADATA_KEY, read_manifest
from kvbench.results.repeats import leaves
from kvbench.results.runfile import Run, read_run
from kvbench.results.thresholds import parse_limits

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"

TIERS = ["gpu,capacity=500", "cpu,capacity=2k"]
TIMED: dict[str, Any] = {
    "workers": 2,
    "tiers": TIERS,
    "block_bytes": "2MiB",
    "compute": "fixed,prefill_ms_per_token=0.1,decode_ms=20",
    "slo": {"ttft": "2s", "tpot": "22ms"},
}
RUNS: dict[str, dict[str, Any]] = {
    "timed": TIMED,
    "window": TIMED | {"window": {"warmup": "10%", "end": "1000s"}, "stop": {"rows": 1500}},
    "order": {"workers": 3, "capacity": 500, "recompute": "token"},
    "tiers": {"workers": 2, "tiers": TIERS},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Requests files by name, each with the document of the run beside it."""
    folder = tmp_path_factory.mktemp("runs")
    paths = {name: folder / f"{name}.parquet" for name in RUNS}
    for name, path in paths.items():
        result = kvbench.replay(CHAT, output=str(path), **RUNS[name])
        path.with_suffix(".json").write_bytes(msgspec.json.encode(result.to_dict()))
    return paths


@pytest.mark.parametrize("name", RUNS)
def test_rows_give_the_figures_of_the_summary_again(runs: dict[str, Path], name: str) -> None:
    document = msgspec.json.decode(runs[name].with_suffix(".json").read_bytes())
    known = dict(leaves(document["summary"]))
    found = dict(leaves(summary_of_rows(runs[name], read_manifest(runs[name]))))
    assert len(found) > 50
    for path, value in found.items():
        same = math.isclose(value, known[path], rel_tol=1e-12) if isinstance(value, float) else value == known[path]
        assert same, path


def test_identical_runs_are_equal_whatever_the_wall_clock_said(runs: dict[str, Path], tmp_path: Path) -> None:
    again, document = tmp_path / "again.parquet", tmp_path / "again.json"
    result = kvbench.replay(CHAT, output=str(again), **TIMED)
    document.write_bytes(msgspec.json.encode(result.to_dict() | {"wall_clock": {"replay_s": 1e9}}))
    for one, other in (
        (runs["timed"], again),
        (runs["timed"].with_suffix(".json"), document),
        (runs["timed"].with_suffix(".json"), again),
    ):
        found = kvbench.compare(one, other)
        assert found.equal, (one, other)
        assert found.settings == {}
        assert not found.differing(1)


def planted(path: Path, into: Path) -> Path:
    """The same run with 1 % fewer hit tokens, all of them at worker 0 and in the CPU's memory."""
    table = pq.read_table(path)
    blocks = sum(table["hit_tokens"].to_pylist()) // 100 // 64
    changed: dict[str, list[int]] = {
        name: table[name].to_pylist() for name in ("hit_blocks", "hit_cpu_blocks", "hit_tokens")
    }
    for row, worker in enumerate(table["worker"].to_pylist()):
        taken = min(blocks, changed["hit_cpu_blocks"][row]) if worker == 0 else 0
        blocks -= taken
        changed["hit_blocks"][row] -= taken
        changed["hit_cpu_blocks"][row] -= taken
        changed["hit_tokens"][row] -= 64 * taken
    assert blocks == 0
    for name, values in changed.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    key = METADATA_KEY.encode()
    pq.write_table(table.replace_schema_metadata({key: pq.read_metadata(path).metadata[key]}), into)
    return into


def test_a_planted_regression_of_one_percent_is_found_and_located(runs: dict[str, Path], tmp_path: Path) -> None:
    found = kvbench.compare(runs["timed"], planted(runs["timed"], tmp_path / "worse.parquet"))
    assert not found.equal
    figures = found.figures
    assert figures["rates.token"].share(1) == pytest.approx(-0.01, rel=2e-3)
    assert figures["workers.each.1.hit_tokens"].delta(1) == 0
    lost = figures["workers.each.0.hit_tokens"].delta(1)
    assert lost is not None
    assert lost < 0
    assert (figures["tiers.gpu.hit_blocks"].delta(1), figures["tiers.cpu.hit_blocks"].delta(1)) == (0, lost / 64)
    assert figures["timed.ttft_ns.p99"].delta(1) == 0
    (rows,) = found.rows
    assert rows is not None
    assert set(rows.columns) == {"hit_blocks", "hit_cpu_blocks", "hit_tokens"}
    table = pq.read_table(runs["timed"])
    first = pc.index(pc.and_(pc.equal(table["worker"], 0), pc.greater(table["hit_cpu_blocks"], 0)), True).as_py()
    assert rows.first == first
    assert rows.values["hit_blocks"][0] == table["hit_blocks"][first].as_py()


def test_settings_that_differ_are_named_and_runs_of_other_kinds_differ(runs: dict[str, Path]) -> None:
    found = kvbench.compare(runs["timed"], runs["tiers"])
    assert found.settings["compute.name"] == ("fixed", None)
    assert found.rows == (None,), "the clock of a timed replay is its own"
    assert "timed.ttft_ns.p99" in found.lacking(1)
    assert not found.equal


def run(digest: str = "a", **figures: float) -> Run:
    manifest = {"kvbench": "1", "config": {}, "trace": {"digest": digest, "source_name": "x"}}
    return Run("run", manifest, {name.replace("__", "."): value for name, value in figures.items()}, {})


def test_runs_of_different_traces_are_refused_unless_told() -> None:
    with pytest.raises(ConfigError, match="of another trace"):
        compare_runs([run(), run("b")])
    assert compare_runs([run(a=1), run("b", a=1)], different_traces=True).equal
    with pytest.raises(ConfigError, match="two runs"):
        compare_runs([run()])


@pytest.mark.parametrize(
    ("limit", "values", "broken"),
    [
        ("token_rate:-1%", (0.5, 0.495), False),
        ("token_rate:-1%", (0.5, 0.4949), True),
        ("token_rate:-1%", (0.5, 0.9), False),
        ("rates.token:+0.1", (0.5, 0.6), False),
        ("rates.token:+0.1", (0.5, 0.61), True),
        ("token_rate:+0%", (0.0, 0.1), True),
        ("token_rate:-0%", (0.3, 0.1 + 0.2), False),
    ],
)
def test_a_limit_is_broken_by_what_is_worse_than_it_allows(
    limit: str, values: tuple[float, float], broken: bool
) -> None:
    (parsed,) = parse_limits([limit], ["rates.token"])
    assert parsed.is_broken_by(Compared("rates.token", values), 1) is broken


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("tokn_rate:-1%", "did you mean token_rate"),
        ("token_rate", "how far it may fall or rise"),
        ("token_rate:1%", "how far it may fall or rise"),
        ("token_rate:-1ms", "has no unit"),
        ("ttft_p99:+20", "write for example 20ms"),
        ("ttft_p99:+20parsec", "is a time"),
        ("token_rate:-x", "is not a number"),
    ],
)
def test_a_limit_that_says_nothing_is_an_error(limit: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_limits([limit], ["rates.token", "timed.ttft_ns.p99"])


def test_a_run_of_several_seeds_is_compared_by_its_means(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"compute": "poly", "workers": 2, "router": "random", "capacity": 100, "seeds": 2}
    result = kvbench.replay_seeds(CHAT, **settings)
    path = tmp_path / "seeds.json"
    path.write_bytes(msgspec.json.encode(result.to_dict()))
    assert read_run(path).figures["rates.token"] == result.figures["rates.token"].mean
