"""The tables of a timed replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.cli.tables import MAX_WORKER_ROWS, add_remarks, simple_table, times
from kvbench.results.goodput import GOODPUT_DEFINITION
from kvbench.results.headline import duration, number, percent
from kvbench.results.latency import ITL_DEFINITION, LATENCIES
from kvbench.results.throughput import THROUGHPUT, WORK
from kvbench.units import format_bytes, format_count

if TYPE_CHECKING:
    from rich.table import Table

    from kvbench.config import RunConfig

SHOWN = ("mean", "p50", "p90", "p95", "p99", "max")
PARTS = ("queue", "fetch", "prefill")
TITLES = {"ttft": "TTFT", "queue": "  queue", "fetch": "  fetch", "prefill": "  prefill", "tpot": "TPOT", "e2e": "E2E"}


def timed_tables(timed: dict[str, Any]) -> list[Table]:
    """Latencies, rates, workers and links."""
    tables = [_latencies(timed), _rates(timed), _workers(timed["workers"])]
    return [*tables, *([_links(timed["links"])] if timed["links"] else [])]


def timed_lines(timed: dict[str, Any], config: RunConfig) -> list[str]:
    """The verdict, and what a reader must know of requests that are in no figure."""
    requests, run, verdict = timed["requests"], timed["run"], timed["verdict"]
    lines = [f"verdict: {verdict['state'] or 'none'}: {verdict['reason']}"]
    if run["stop"] != "all requests done":
        why = f": {run['diagnosis']}" if run["diagnosis"] else ""
        lines.append(f"stopped after {duration(run['duration_ns'])}: {run['stop']}{why}")
    elif config.stop is not None and config.stop.converged is not None:
        lines.append(f"not converged: the mean TTFT was not known to {config.stop.converged:.3g} of it by the end")
    if requests["unfinished"]:
        lines.append(f"unfinished: {requests['unfinished']:,} requests; latencies and rates are of those that are done")
    if requests["not_counted"]:
        lines.append(f"not counted: {requests['not_counted']:,} requests of the warm-up or outside the window")
    free = [tier.name for tier in (config.tiers or [])[1:] if tier.device is None and not tier.path]
    if free:
        lines.append(
            f"note: moves of {', '.join(free)} take no time without a device; give device=cpu-pcie5 or another"
        )
    return lines


def _latencies(timed: dict[str, Any]) -> Table:
    method = timed["percentile_method"]
    table = simple_table(f"latency ({method})", "n", *SHOWN, "of TTFT")
    add_remarks(table, "definition")
    for name, title in TITLES.items():
        found = timed[f"{name}_ns"]
        share = percent(timed["ttft_shares"][name]) if name in PARTS else ""
        table.add_row(title, f"{found['n']:,}", *(duration(found[each]) for each in SHOWN), share, LATENCIES[name])
    itl = timed["itl_ns"]
    table.add_row("ITL", f"{itl['n']:,}", duration(itl["mean"]), *[""] * len(SHOWN), ITL_DEFINITION)
    return table


def _rates(timed: dict[str, Any]) -> Table:
    found, window = timed["throughput"], timed["window_throughput"]
    table = simple_table("throughput", "count", "a second", *(["in window"] if window else []))
    add_remarks(table)

    def add(name: str, count: int | None, rate: float | None, in_window: float | None, remark: str) -> None:
        table.add_row(name, number(count), _rate(rate), *([_rate(in_window)] if window else []), remark)

    for name, text in THROUGHPUT.items():
        inside = window[f"{name}_per_s"] if window else None
        add(name.replace("_", " "), found[name], found[f"{name}_per_s"], inside, text)
    goodput = timed["goodput"]
    if goodput is not None:
        remark = f"{percent(goodput['share_of_done'])} of those done; {GOODPUT_DEFINITION}"
        add("goodput", goodput["requests"], goodput["requests_per_s"], None, remark)
        for name, slo in goodput["slo"].items():
            remark = f"{percent(slo['share_of_done'])} of those done"
            add(f"  {TITLES[name]} ≤ {duration(slo['limit_ns'])}", slo["met"], None, None, remark)
    for name in ("recomputed_tokens", "preemptions", "declined_blocks", "readmitted_blocks"):
        if timed["work"][name]:
            add(name.replace("_", " "), timed["work"][name], None, None, WORK[name])
    return table


def _workers(workers: dict[str, Any]) -> Table:
    headers = ("busy", "steps", "prefill tokens", "a busy second", "decode tokens", "preemptions")
    table = simple_table("worker", *headers)
    for each in workers["each"][:MAX_WORKER_ROWS]:
        table.add_row(
            str(each["worker"]),
            percent(each["utilisation"]),
            f"{each['steps']:,}",
            f"{each['prefill_tokens']:,}",
            _rate(each["prefill_tokens_per_busy_s"]),
            f"{each['decode_tokens']:,}",
            f"{each['preemptions']:,}",
        )
    if len(workers["each"]) > MAX_WORKER_ROWS:
        table.add_row(f"… {len(workers['each']) - MAX_WORKER_ROWS} more: see --json")
    if len(workers["each"]) > 1:
        table.add_row("all", percent(workers["utilisation"]))
        table.add_row("max/mean", times(workers["max_over_mean_busy"]))
    return table


def _links(links: list[dict[str, Any]]) -> Table:
    table = simple_table("link", "moved", "operations", "busy", "while busy", "configured")
    for each in links[:MAX_WORKER_ROWS]:
        table.add_row(
            f"{each['name']} {each['store']}",
            format_bytes(each["moved_bytes"]),
            f"{each['operations']:,}",
            percent(each["utilisation"]),
            _bandwidth(each["achieved_bytes_per_s"]),
            _bandwidth(each["bandwidth_bytes_per_s"]),
        )
    if len(links) > MAX_WORKER_ROWS:
        table.add_row(f"… {len(links) - MAX_WORKER_ROWS} more: see --json")
    return table


def _rate(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if value < 1_000 else format_count(value)


def _bandwidth(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e9:.3g} GB/s"
