"""The figures of one run that are worked out of the rows of its ``requests`` file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from kvbench.report.figure import Figure, bars, lines
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

WINDOWS = 100
"""Windows of equally many requests along a run."""

QUANTILES = 200
"""Points of a distribution."""

TTFT_GROUPS = (("fastest half", 0.0, 0.5), ("p50–p90", 0.5, 0.9), ("p90–p99", 0.9, 0.99), ("slowest 1 %", 0.99, 1.0))
"""Requests by their rank in TTFT."""

PARTS = ("queue", "fetch", "prefill")
"""Of TTFT: waiting, loading from lower tiers, and computing the prompt; they add up to it."""

LATENCIES = ("ttft", "e2e")


def row_figures(path: Path, prefix: str = "") -> list[Figure]:
    """All that the rows have columns for; ``prefix`` stands before their names."""
    present = set(pq.read_schema(path).names)
    found = []
    hits = _columns(path, [name for name in ("hit_tokens", "input_tokens") if name in present])
    if len(hits) == 2 and len(hits["hit_tokens"]) >= 2:
        found.append(_hits_along(hits, prefix))
    if "ttft_ns" in present:
        times = _columns(path, [f"{name}_ns" for name in (*LATENCIES, *PARTS)])
        if len(times["ttft_ns"]):
            found += [_latencies(times, prefix), _parts_by_rank(times, prefix)]
    return found


def _columns(path: Path, names: list[str]) -> dict[str, Int64s]:
    """Columns of the rows in which all of them have a value."""
    table = pq.read_table(path, columns=names).drop_null()
    return {name: numbers(table.column(name).combine_chunks()).astype(np.int64) for name in table.column_names}


def _hits_along(columns: Mapping[str, Int64s], prefix: str) -> Figure:
    count = len(columns["hit_tokens"])
    starts = np.unique(np.linspace(0, count, WINDOWS + 1).astype(np.int64)[:-1])
    hit, asked = (np.add.reduceat(columns[name], starts) for name in ("hit_tokens", "input_tokens"))
    rows = [
        {"request": int(start), "token_rate": float(part / whole)}
        for start, part, whole in zip(starts, hit, asked, strict=True)
        if whole
    ]
    return lines(
        f"{prefix}hits-along",
        "Hit rate along the trace",
        rows,
        x="request",
        y="token_rate",
        x_title="number of the request",
        y_title="token hit rate",
        percent=True,
        note=f"A point is the rate of {max(1, count // len(starts)):,} requests.",
    )


def _latencies(times: Mapping[str, Int64s], prefix: str) -> Figure:
    shares = np.linspace(0, 1, QUANTILES + 1)
    rows = [
        {"latency": name.upper(), "seconds": value / 1e9, "share": share}
        for name in LATENCIES
        for value, share in zip(
            np.quantile(times[f"{name}_ns"], shares, method="inverted_cdf").tolist(), shares.tolist(), strict=True
        )
        if value > 0
    ]
    return lines(
        f"{prefix}latency",
        "Latency distribution",
        rows,
        x="seconds",
        y="share",
        x_title="seconds",
        y_title="share of requests at most this slow",
        series="latency",
        x_log=True,
        percent=True,
        note=f"Drawn at {QUANTILES} quantiles of {len(times['ttft_ns']):,} requests.",
    )


def _parts_by_rank(times: Mapping[str, Int64s], prefix: str) -> Figure:
    order = np.argsort(times["ttft_ns"], kind="stable")
    rows: list[dict[str, Any]] = []
    for group, first, last in TTFT_GROUPS:
        ranked = order[int(first * len(order)) : int(last * len(order))]
        if len(ranked):
            rows += [
                {
                    "requests": group,
                    "part": part,
                    "milliseconds": float(times[f"{part}_ns"][ranked].mean()) / 1e6,
                    "count": len(ranked),
                }
                for part in PARTS
            ]
    return bars(
        f"{prefix}ttft-parts",
        "What TTFT is made of",
        rows,
        x="requests",
        y="milliseconds",
        x_title="",
        y_title="mean TTFT (ms)",
        series="part",
        horizontal=True,
        note="Queue is waiting, fetch is loading from lower tiers, prefill is computing the prompt.",
    )
