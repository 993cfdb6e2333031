"""Rows of requests from the files of three benchmarks: vLLM's own, AIPerf and GuideLLM.

Each row has any of ``request_id``, ``arrival``, ``ttft``, ``tpot``, ``e2e`` and ``held`` (how long the client sent a
request after it was due), all times in ns; a request that failed has no latencies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.units import DURATION_UNITS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

NS_PER_MS = 1_000_000
_UNITS = {**DURATION_UNITS, "sec": NS_PER_S}

NOT_DUE = "measured TTFT and E2E count from when a request was sent; the file does not say when it was due"

VLLM_LISTS = ("itls", "output_lens", "latencies", "start_times", "queue_times", "errors")
"""Beside ``ttfts``: lists of vLLM's result that are used where they are there."""

AIPERF_LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
"""AIPerf's ITL is a request's (E2E - TTFT) / (output - 1), which is TPOT."""


@dataclass(frozen=True, slots=True)
class BenchFile:
    """What a file has: of which benchmark it is, its rows, and what to know of them."""

    source: str
    rows: list[dict[str, Any]]
    notes: tuple[str, ...] = field(default=())


def vllm_rows(name: str, result: Any) -> BenchFile:
    """A result of ``vllm bench serve``: lists with a value a request, in the order in which they were sent. Without
    ``latencies``, as older versions write it, the end-to-end time is TTFT plus all gaps, as in vLLM's plots."""
    if not isinstance(result, dict) or not isinstance(result.get("ttfts"), list):
        raise ConfigError(
            f"{name}: has the summary of vLLM's benchmark alone; run it with --save-result --save-detailed"
        )
    try:
        count = len(result["ttfts"])
        lists = {key: result[key] for key in VLLM_LISTS if isinstance(result.get(key), list)}
        for key, values in lists.items():
            if len(values) != count:
                raise ConfigError(f"{name}: ttfts has {count} values, and {key} {len(values)}")
        requests = [{key: values[at] for key, values in lists.items()} for at in range(count)]
        rows = [_vllm_row(ttft_s, request) for ttft_s, request in zip(result["ttfts"], requests, strict=True)]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: not what vllm bench serve writes: {error}") from None
    return BenchFile("vLLM bench serve", rows, () if "queue_times" in lists else (NOT_DUE,))


def _vllm_row(ttft_s: float, request: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if request.get("start_times"):
        row["arrival"] = request["start_times"] * NS_PER_S
    if request.get("errors") or not ttft_s:
        return row
    row |= {"ttft": ttft_s * NS_PER_S, "held": (request.get("queue_times") or 0) * NS_PER_S}
    gaps = request.get("itls") or []
    e2e_s = request.get("latencies") or (ttft_s + sum(gaps) if "itls" in request else None)
    if e2e_s:
        row["e2e"] = e2e_s * NS_PER_S
        tokens = request.get("output_lens") or len(gaps) + 1
        if tokens > 1 and e2e_s > ttft_s:
            row["tpot"] = (e2e_s - ttft_s) / (tokens - 1) * NS_PER_S
    return row


def aiperf_rows(name: str, records: Sequence[Any]) -> BenchFile:
    """The lines of AIPerf's ``profile_export.jsonl``; those of its warm-up are left out."""
    rows, warm = [], 0
    for number, record in enumerate(records, 1):
        try:
            metadata = record["metadata"]
            if metadata.get("benchmark_phase") == "warmup":
                warm += 1
                continue
            rows.append(_aiperf_row(metadata, record))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"{name}, line {number}: not a record of AIPerf: {error!r}") from None
    notes = [NOT_DUE]
    if warm:
        notes.append(f"{warm:,} requests of the warm-up are left out")
    return BenchFile("AIPerf", rows, tuple(notes))


def _aiperf_row(metadata: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"request_id": metadata.get("x_request_id")}
    if metadata.get("request_start_ns") is not None:
        row["arrival"] = float(metadata["request_start_ns"])
    if record.get("error") or metadata.get("was_cancelled"):
        return row
    metrics = record.get("metrics") or {}
    for latency, key in AIPERF_LATENCIES.items():
        if metrics.get(key) is not None:
            row[latency] = _aiperf_ns(metrics[key])
    return row


def _aiperf_ns(metric: Any) -> float:
    """A value with its unit; a bare number is in ms."""
    if not isinstance(metric, dict):
        return float(metric) * NS_PER_MS
    if metric["unit"] not in _UNITS:
        raise ValueError(f"unit {metric['unit']!r} is no time")
    return float(metric["value"]) * _UNITS[metric["unit"]]


def guidellm_rows(name: str, benchmark: Any) -> BenchFile:
    """One of the ``benchmarks`` of GuideLLM's JSON. Its inter-token latency leaves the first token out and is TPOT;
    what it calls the time per output token does not."""
    try:
        groups = benchmark["requests"]
        rows = [_guidellm_row(request, done=True) for request in groups.get("successful") or ()]
        for group in ("errored", "incomplete"):
            rows += [_guidellm_row(request, done=False) for request in groups.get(group) or ()]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name}: not what GuideLLM writes: {error!r}") from None
    return BenchFile("GuideLLM", rows, () if any("held" in row for row in rows) else (NOT_DUE,))


def _guidellm_row(request: dict[str, Any], *, done: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"request_id": request.get("request_id")}
    if request.get("request_start_time") is not None:
        row["arrival"] = request["request_start_time"] * NS_PER_S
    if not done:
        return row
    named = {
        "ttft": ("time_to_first_token_ms", NS_PER_MS),
        "tpot": ("inter_token_latency_ms", NS_PER_MS),
        "e2e": ("request_latency", NS_PER_S),
        "held": ("request_dispatch_delay", NS_PER_S),
    }
    return row | {
        key: request[column] * scale for key, (column, scale) in named.items() if request.get(column) is not None
    }
