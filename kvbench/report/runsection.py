"""The part of a report that says what one run found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.figure import HEIGHT
from kvbench.report.page import Headline, Section, TableView
from kvbench.report.rowfigures import row_figures
from kvbench.report.runfigures import rate_name, run_figures
from kvbench.report.timefigures import time_figures
from kvbench.results.headline import number, percent
from kvbench.results.latency import LATENCIES
from kvbench.results.rates import RATES
from kvbench.units import format_bytes, format_count, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbench.report.figure import Figure
    from kvbench.report.sources import ReportRun

SHOWN = ("mean", "p50", "p90", "p95", "p99", "max")


def figures_of_run(run: ReportRun, prefix: str = "") -> list[Figure]:
    """Every figure that the files of a run have."""
    found = run_figures(run.summary, prefix)
    if run.requests is not None:
        found += row_figures(run.requests, prefix)
    if run.timeline is not None:
        found += time_figures(run.timeline, prefix, run.config.get("block_bytes"))
    return found


def run_section(run: ReportRun, title: str, prefix: str = "") -> Section:
    """The headlines, figures (low ones first, which stand well beside each other) and tables of a run."""
    summary = run.summary
    tables = [_rates(summary)]
    if summary.get("tiers"):
        tables.append(_tiers(summary["tiers"]))
    timed = summary.get("timed")
    if timed is not None:
        tables.append(_latencies(timed))
        if timed.get("links"):
            tables.append(_links(timed["links"]))
    return Section(
        title,
        text=_remarks(run),
        headlines=_headlines(summary),
        figures=sorted(figures_of_run(run, prefix), key=lambda figure: figure.height >= HEIGHT),
        tables=tables,
    )


def _headlines(summary: Mapping[str, Any]) -> list[Headline]:
    name = rate_name(summary)
    rate, bound, infinite = ((summary.get(key) or {}).get(name) for key in ("rates", "belady_rates", "infinite_rates"))
    found = [Headline(f"{name} hit rate", percent(rate), RATES[name])]
    if bound is not None and rate is not None:
        found.append(
            Headline("OPT (Belady)", percent(bound), f"{100 * (bound - rate):.2f} points more, knowing the future")
        )
    if infinite is not None and rate is not None:
        found.append(
            Headline(
                "infinite cache", percent(infinite), f"{100 * (infinite - rate):.2f} points more, evicting nothing"
            )
        )
    timed = summary.get("timed")
    if timed is not None:
        found += _timed_headlines(timed)
    busiest = (summary.get("workers") or {}).get("max_over_mean_computed_tokens")
    if busiest is not None and summary["workers"]["count"] > 1:
        found.append(Headline("busiest worker", f"{busiest:.2f} ×", "its computed tokens over the mean of all"))
    return found


def _timed_headlines(timed: Mapping[str, Any]) -> list[Headline]:
    ttft, goodput = timed["ttft_ns"], timed.get("goodput")
    found = []
    if ttft["n"]:
        median = f"median {format_duration_ns(ttft['p50'])}, of {ttft['n']:,} requests"
        found.append(Headline("p99 TTFT", format_duration_ns(ttft["p99"]), median))
    output = (timed.get("throughput") or {}).get("output_tokens_per_s")
    if output is not None:
        found.append(Headline("output tokens a second", format_count(output), "of all workers"))
    if goodput is not None and goodput.get("share_of_done") is not None:
        limits = ", ".join(
            f"{key.upper()} ≤ {format_duration_ns(slo['limit_ns'])}" for key, slo in goodput["slo"].items()
        )
        if limits:
            found.append(Headline("meet all SLOs", percent(goodput["share_of_done"]), limits))
    verdict = timed.get("verdict")
    if verdict is not None:
        found.append(Headline("verdict", verdict["state"].capitalize().replace("_", " "), verdict["reason"]))
    return found


def _remarks(run: ReportRun) -> list[str]:
    requests = run.summary["requests"]
    found = []
    if requests.get("rejected"):
        found.append(f"{requests['rejected']:,} of {requests['arrived']:,} requests were rejected, for example:")
        found += [str(example) for example in requests["rejected_examples"]]
    if requests.get("unfinished"):
        found.append(f"{requests['unfinished']:,} requests were not finished.")
    found += [f"Note: {text}." for text in run.manifest.get("notes", [])]
    found += [f"Caution: {text}." for text in run.manifest.get("cautions", [])]
    return found


def _rates(summary: Mapping[str, Any]) -> TableView:
    rows = [
        [
            name.replace("_", " "),
            *(percent((summary.get(of) or {}).get(name)) for of in ("rates", "belady_rates", "infinite_rates")),
            definition,
        ]
        for name, definition in RATES.items()
    ]
    return TableView("Hit rates", ["rate", "this run", "OPT (Belady)", "infinite cache", "definition"], rows)


def _tiers(tiers: list[dict[str, Any]]) -> TableView:
    rows = [
        [
            tier["tier"],
            number(tier.get("capacity_blocks")),
            number(tier["hit_blocks"]),
            percent(tier.get("token_rate")),
            *(("–" if tier.get(key) is None else format_bytes(tier[key])) for key in ("read_bytes", "written_bytes")),
            number(tier.get("evicted_room_blocks")),
        ]
        for tier in tiers
    ]
    headers = ["tier", "blocks a store", "hit blocks", "token rate", "read", "written", "evicted blocks"]
    return TableView("Tiers", headers, rows)


def _latencies(timed: Mapping[str, Any]) -> TableView:
    rows = []
    for name, definition in LATENCIES.items():
        found = timed[f"{name}_ns"]
        values = ["–" if found[each] is None else format_duration_ns(found[each]) for each in SHOWN]
        title = name.upper() if name in ("ttft", "tpot", "e2e") else name
        rows.append([title, f"{found['n']:,}", *values, definition])
    return TableView(f"Latencies ({timed['percentile_method']} percentiles)", ["", "n", *SHOWN, "definition"], rows)


def _links(links: list[dict[str, Any]]) -> TableView:
    rows = [
        [
            f"{link['name']} {link['store']}",
            format_bytes(link["moved_bytes"]),
            number(link["operations"]),
            percent(link["utilisation"]),
            *(_bandwidth(link[key]) for key in ("achieved_bytes_per_s", "bandwidth_bytes_per_s")),
        ]
        for link in links
    ]
    return TableView("Links", ["link", "moved", "operations", "busy", "while busy", "configured"], rows)


def _bandwidth(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e9:,.3g} GB/s"
