"""A timed run beside what was measured (user report H-l)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import ConfigError, KvbenchError
from kvbench.results.accuracy import accuracy_of, ranks
from kvbench.results.measured import LATENCIES, read_measured_requests

NAN = float("nan")

VLLM: dict[str, Any] = {
    "ttfts": [0.1, 0.2, 0.0, 0.3],
    "itls": [[0.01, 0.03], [], [], [0.05]],
    "output_lens": [3, 1, 0, 2],
    "start_times": [100.0, 101.0, 102.0, 103.0],
    "errors": ["", "", "refused", ""],
}


def aiperf(number: int, start_s: float, **metrics: float) -> dict[str, Any]:
    metadata = {"x_request_id": f"r{number}", "request_start_ns": int(start_s * 1e9), "benchmark_phase": "profiling"}
    values = {name: {"value": value, "unit": "ms"} for name, value in metrics.items()}
    return {"metadata": metadata, "metrics": values, "error": None if metrics else {"code": 500}}


AIPERF = [
    aiperf(0, 1, time_to_first_token=100, inter_token_latency=20, request_latency=140),
    aiperf(1, 2, time_to_first_token=200, request_latency=200),
    aiperf(2, 3),
    aiperf(3, 4, time_to_first_token=300, inter_token_latency=50, request_latency=350),
]


def guidellm(number: int, **values: float) -> dict[str, Any]:
    return {"request_id": f"r{number}", "request_start_time": 1_000.0 + number, **values}


GUIDELLM = {
    "benchmarks": [
        {
            "requests": {
                "successful": [
                    guidellm(0, time_to_first_token_ms=100, inter_token_latency_ms=20, request_latency=0.14),
                    guidellm(1, time_to_first_token_ms=200, request_latency=0.2, time_per_output_token_ms=200),
                    guidellm(3, time_to_first_token_ms=300, inter_token_latency_ms=50, request_latency=0.35),
                ],
                "errored": [guidellm(2)],
            }
        }
    ]
}

TABLE = (
    "request_id,arrival_s,ttft_ms,itl_ns,e2e_s\n"
    "r0,1,100,20000000,0.14\nr1,2,200,0,0.2\nr2,3,,,\nr3,4,300,50000000,0.35\n"
)

FILES = {
    "vllm.json": json.dumps(VLLM),
    "profile_export.jsonl": "\n".join(map(json.dumps, AIPERF)),
    "guidellm.json": json.dumps(GUIDELLM, indent=1),
    "table.csv": TABLE,
}


@pytest.mark.parametrize("name", FILES)
def test_every_file_gives_the_same_latencies(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    found = read_measured_requests(path)
    order = np.argsort(found.arrival_ns)
    values = {latency: found.latencies_ns[latency][order] / 1e6 for latency in LATENCIES}
    np.testing.assert_allclose(values["ttft"], [100, 200, NAN, 300])
    np.testing.assert_allclose(values["tpot"], [20, NAN, NAN, 50])
    np.testing.assert_allclose(values["e2e"], [140, 200, NAN, 350])
    assert found.failed == 1


def test_what_the_client_held_back_counts_from_when_it_was_due(tmp_path: Path) -> None:
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(VLLM | {"queue_times": [0, 1, 0, 0.5], "latencies": [0.14, 0.2, 0, 0.35]}))
    found = read_measured_requests(path)
    np.testing.assert_allclose(found.latencies_ns["ttft"] / 1e6, [100, 1_200, NAN, 800])
    np.testing.assert_allclose(found.latencies_ns["tpot"] / 1e6, [20, NAN, NAN, 50])
    np.testing.assert_allclose(found.arrival_ns / 1e9, [100, 100, 102, 102.5])
    assert "on average" in found.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", json.dumps({"mean_ttft_ms": 3.0}), "--save-detailed"),
        ("a.json", json.dumps(VLLM | {"itls": []}), "ttfts has 4 values, and itls 0"),
        ("a.json", json.dumps({"benchmarks": GUIDELLM["benchmarks"] * 2}), "has 2 benchmarks; say which"),
        ("a.json", json.dumps({"x": 1}, indent=1), "is not what vLLM's bench serve, AIPerf or GuideLLM write"),
        ("a.jsonl", json.dumps(AIPERF[0]) + '\n{"metadata": 3}', "line 2: not a record of AIPerf"),
        ("a.csv", "took\n3\n", "columns such as ttft_ms"),
        ("a.csv", "ttft_ms,ttft_s\n3,4\n", "has ttft in s and in ms"),
        ("a.csv", "ttft_ms\n0\n", "is not above 0"),
        ("a.csv", "ttft_ms\nx\n", "row 1, ttft_ms = 'x': must be a number"),
        ("a.csv", "itl_ms,tpot_ms\n1,1\n", "two names of one thing"),
    ],
)
def test_a_file_that_is_none_of_these_is_an_error(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_measured_requests(tmp_path / name)


def test_figures_are_those_of_a_calculation_by_hand() -> None:
    found = accuracy_of(np.array([1.0, 2.0, 6.0]), np.array([2.0, 2.0, 4.0]))
    assert (found.n, found.mape) == (3, pytest.approx((0.5 + 0 + 0.5) / 3))
    assert found.errors["mean"] == pytest.approx(9 / 8 - 1)
    assert found.errors["p50"] == 0
    assert found.errors["p99"] == pytest.approx((2 + 0.98 * 4) / (2 + 0.98 * 2) - 1)
    assert found.pearson == pytest.approx(np.corrcoef([1, 2, 6], [2, 2, 4])[0, 1])
    assert found.spearman == pytest.approx(np.corrcoef([1, 2, 3], [1.5, 1.5, 3])[0, 1])
    assert accuracy_of(np.array([1.0, 1.0]), np.array([1.0, 2.0])).pearson is None


def test_equal_values_share_a_rank() -> None:
    assert ranks(np.array([5.0, 1.0, 5.0, 9.0, 5.0])).tolist() == [3, 1, 3, 5, 3]


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Four requests of one prompt token a millisecond, one output token each, far apart."""
    table = pa.table(
        {
            "arrival_ns": pa.array([at * 10**9 for at in range(4)], pa.int64()),
            "input_tokens": pa.array([100, 200, 150, 330], pa.uint32()),
            "request_id": pa.array(["r0", "r1", "r2", "r3"]),
        }
    )
    path = tmp_path / "run.parquet"
    kvbench.replay(table, compute="fixed,prefill_ms_per_token=1,decode_ms=1", output=str(path))
    return path


@pytest.mark.parametrize("name", FILES)
def test_requests_are_matched_by_id_or_by_order_and_failed_ones_left_out(
    timed: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(FILES[name])
    found = kvbench.compare_measured(timed, tmp_path / name, engine="vLLM 0.33.0")
    assert found.matched_by == ("order of arrival" if name == "vllm.json" else "request_id")
    assert (found.requests["matched"], found.requests["failed_in_the_measurement"]) == (4, 1)
    ttft = found.accuracy["ttft"]
    assert (ttft.n, ttft.mape) == (3, pytest.approx((0 + 0 + 0.1) / 3))
    assert ttft.errors["mean"] == pytest.approx(630 / 600 - 1)
    document = found.to_dict()
    assert document["engine"] == "vLLM 0.33.0"
    assert document["predicted"]["compute"]["name"] == "fixed"
    assert set(found.pairs["engine"].to_pylist()) == {"vLLM 0.33.0"}
    assert found.pairs.filter(pa.compute.equal(found.pairs["latency"], "ttft"))["request"].to_pylist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft_ms\n1\n2\n", "there are 4 and 2"),
        ("request_id,ttft_ms\nr1,1\nr1,2\n", "stands twice"),
        ("request_id,ttft_ms\nq1,1\n", "have no request_id in common"),
    ],
)
def test_requests_that_cannot_be_matched_are_an_error(timed: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(KvbenchError, match=message):
        kvbench.compare_measured(timed, tmp_path / "m.csv")
