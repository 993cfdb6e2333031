"""What stands in the metadata of result files (user reports J05 and J06)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.results.columnunits import UNITS_KEY, unit_of
from kvbench.results.parquet import read_manifest
from kvbench.results.result import RESULT_VERSION

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
SUFFIXES = {"ns": "ns", "bytes": "bytes", "blocks": "blocks", "tokens": "tokens", "operations": "operations"}
TIERS: dict[str, Any] = {"tiers": ["gpu,capacity=500", "cpu,capacity=2k"], "block_bytes": "2MiB", "workers": 2}
TIMED: dict[str, Any] = TIERS | {"compute": "fixed,prefill_ms_per_token=0.1,decode_ms=20"}


@pytest.mark.parametrize("settings", [TIERS, TIMED], ids=["order", "timed"])
def test_j05_every_table_has_a_version_and_every_quantity_a_unit(tmp_path: Path, settings: dict[str, Any]) -> None:
    files = {name: str(tmp_path / f"{name}.parquet") for name in ("output", "events", "timeline")}
    kvbench.replay(CHAT, **settings, **files)
    for path in files.values():
        assert read_manifest(path)["version"] == RESULT_VERSION
        schema = pq.read_schema(path)
        units = {field.name: field.metadata[b"unit"].decode() for field in schema if field.metadata}
        wanted = {name: SUFFIXES[end] for name in schema.names if (end := name.rpartition("_")[2]) in SUFFIXES}
        assert wanted.items() <= units.items()
        assert json.loads(pq.read_metadata(path).metadata[UNITS_KEY.encode()]) == units
        for name in ("request", "worker", "session_id", "key", "kind", "tier", "store", "status"):
            assert name not in units


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("timed.ttft_ns.p99", "ns"),
        ("timed_throughput_output_tokens_per_s", "tokens/s"),
        ("prefill_tokens_per_busy_s", "tokens/s"),
        ("belady_rates_token", "share"),
        ("workers_max_over_mean_requests", "ratio"),
        ("goodput.share_of_done", "share"),
        ("tiers.cpu.read_bytes", "bytes"),
        ("moved_bytes_per_s", "bytes/s"),
        ("misses.evicted", "blocks"),
        ("seed", None),
        ("tenants", None),
    ],
)
def test_a_name_says_its_unit(name: str, unit: str | None) -> None:
    assert unit_of(name) == unit


def test_j06_a_manifest_has_all_that_a_result_depends_on(tmp_path: Path) -> None:
    table = pa.ipc.open_file(CHAT).read_all()
    arrivals = table["arrival_ns"].to_pylist()
    arrivals[3] = -5
    at = table.schema.get_field_index("arrival_ns")
    bad = table.set_column(at, table.schema.field(at), pa.array(arrivals, pa.int64()))
    path = str(tmp_path / "requests.parquet")
    kvbench.replay(bad, on_error="skip", capacity="1k", seed=7, output=path)
    manifest = read_manifest(path)
    trace = manifest["trace"]
    assert trace["digest"].startswith("blake3:")
    assert (trace["rows"], trace["skipped_rows"]) == (len(table) - 1, 1)
    assert (manifest["config"]["seed"], manifest["config"]["policy"], manifest["config"]["capacity"]) == (
        7,
        {"name": "lru"},
        1000,
    )
    assert (manifest["kvbench"], manifest["plugins"], manifest["cache"]) == (kvbench.__version__, {}, "cold")


def test_j06_figures_of_requests_behind_a_warm_up_are_those_of_warm_caches() -> None:
    assert kvbench.replay(CHAT, **TIMED, window={"warmup": "10%"}).manifest["cache"] == "warm"
    assert kvbench.replay(CHAT, **TIMED, window={"end": "100s"}).manifest["cache"] == "cold"
