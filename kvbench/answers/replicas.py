"""How many replicas for an SLO? The load that is expected on more and more workers, each under several seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.router import EVEN
from kvbench.answers.variants import (
    ALONE,
    Ran,
    Variant,
    given_settings,
    number_of,
    part_name,
    read_trace,
    run_variants,
    table_of,
)
from kvbench.answers.words import parse_share
from kvbench.errors import ConfigError
from kvbench.replays.arrivals import Arrivals
from kvbench.replays.engine import keyed_trace
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars, lines
from kvbench.results.headline import percent
from kvbench.results.rates import ratio
from kvbench.results.repeats import Figure as Repeated
from kvbench.results.run import open_configured
from kvbench.units import NS_PER_S, parse_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.answer import Asked
    from kvbench.config import RunConfig
    from kvbench.replays.plan import Plan
    from kvbench.report.figure import Figure
    from kvbench.trace.reader import Trace

WORKERS = "1..8"
"""Numbers that are tried where none are given."""

WARMUP = "10%"
"""Left out of the figures where no window is given: the caches are cold."""

WORST_FIRST = ("OVERLOADED", "BACKLOGGED", "STABLE")
MOSTLY = 0.8
"""Where computing is so much of the TTFT, more workers do not help."""

PARTS = ("queue", "fetch", "prefill")


def answer(
    asked: Asked,
    *,
    counts: Sequence[int] | str | None = None,
    scales: Sequence[float | str] = (1,),
    share: str = "99%",
    seeds: int = 1,
) -> Answer:
    """Replay the trace on each number of workers, and find the smallest that holds the limits.

    ``counts``  numbers of workers to try.
    ``scales``  loads to try: how many times as fast as the run says requests arrive.
    ``share``   of the requests that must meet all limits.
    ``seeds``   replays of each, from the seed of the run on; the low end of the interval must reach ``share``.
    """
    config = asked.config
    if config.compute is None or config.slo is None:
        raise ConfigError("how long requests take has to be known, and how long they may: give --compute and --slo")
    if seeds < 1:
        raise ConfigError(f"--seeds = {seeds} must be at least 1")
    counts = numbers_of(counts)
    wanted, loads = parse_share(share, "--share"), [_scale(each) for each in scales]
    trace = read_trace(config, needs_ids=False)
    plan = make_plan(config, asked.registry, trace)
    cautions = _cautions(plan, config)
    ran = run_variants(asked, _variants(config, counts, loads, seeds))
    rows = [_row([each for each in ran if each.label["workers"] == count and each.label["load"] == scale], wanted)
            for scale in loads for count in counts]  # fmt: skip
    enough = {scale: _enough(rows, scale) for scale in loads}
    shown = [each for each in ran if each.label == _shown(rows, enough, loads[-1], config.seed)]
    return Answer(
        question="replicas",
        advice=[*_advice(rows, enough, wanted, seeds, config), *_without_ids(trace), *cautions],
        tables={"replicas": table_of(rows), "workers": table_of(_worker_rows(shown))},
        manifest=manifest_of(plan, trace, asked.registry, counts=list(counts), scales=loads, share=share, seeds=seeds),
        figures=_figures(rows, loads),
    )


def numbers_of(counts: Sequence[int] | str | None) -> list[int]:
    """Rising numbers of workers, from ``1..8`` or ``2,4,8`` too; None: :data:`WORKERS`. Raises ConfigError for what is
    no such list."""
    text = WORKERS if counts is None else counts if isinstance(counts, str) else ",".join(map(str, counts))
    found: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        ends = [parse_count(first), parse_count(last if dots else first)]
        if ends[0] < 1 or ends[1] < ends[0]:
            raise ConfigError(f"--workers {text}: {part!r} is no range of numbers of at least 1, such as 1..8")
        found |= set(range(ends[0], ends[1] + 1))
    return sorted(found)


def _scale(given: float | str) -> float:
    value = number_of(given, float, "--load-scale")
    if not 0 < value < math.inf:
        raise ConfigError(f"--load-scale {given} must be a number above 0, such as 0.5 or 2")
    return value


def _variants(config: RunConfig, counts: Sequence[int], scales: Sequence[float], seeds: int) -> list[Variant]:
    settings = given_settings(config)
    settings.setdefault("window", {"warmup": WARMUP})
    arrivals = settings.get("arrivals", {})
    found = []
    for scale in scales:
        for count in counts:
            for seed in range(config.seed, config.seed + seeds):
                changed = settings | {"workers": count, "seed": seed}
                changed["arrivals"] = arrivals | {"rate": arrivals.get("rate", 1.0) * scale}
                if count == 1:
                    changed = {name: value for name, value in changed.items() if name not in ALONE}
                    tiers = [tier | {"scope": _alone(tier)} for tier in settings.get("tiers", [])]
                    changed |= {"tiers": tiers} if tiers else {}
                found.append(Variant({"load": scale, "workers": count, "seed": seed}, changed))
    return found


def _alone(tier: dict[str, Any]) -> str:
    """The scope of a tier that one worker has to itself."""
    return "rank" if tier.get("scope") == "rank" else "worker"


def _cautions(plan: Plan, config: RunConfig) -> list[str]:
    """Whether the clock of the trace is too coarse for its arrivals to be relied on."""
    assert plan.serving is not None
    trace = open_configured(config)
    arrivals = Arrivals(plan.serving, keyed_trace(trace, [plan]), config.seed)
    for _ in arrivals.batches():
        pass
    return [f"Caution: {text.replace(trace.name, Path(trace.name).name)}." for text in arrivals.cautions()]


def _row(ran: Sequence[Ran], wanted: float) -> dict[str, Any]:
    """The figures of one number of workers at one rate: means over the seeds."""
    timed = [each.summary["timed"] for each in ran]
    met = Repeated.of([each["goodput"]["share_of_arrived"] for each in timed])
    states = [each["verdict"]["state"] for each in timed]
    low = met.mean if met.low is None else met.low

    def mean(path: str) -> float | None:
        found = []
        for node in timed:
            for step in path.split("."):
                node = node[step]
            if node is not None:
                found.append(node)
        return ratio(sum(found), len(found))

    return {
        "load": ran[0].label["load"],
        "workers": ran[0].label["workers"],
        "slo_share": met.mean,
        "slo_share_low": None if met.low is None else max(met.low, 0.0),
        "slo_share_high": None if met.high is None else min(met.high, 1.0),
        "holds": low >= wanted,
        **{f"{name}_share": mean(f"goodput.slo.{name}.share_of_done") for name in timed[0]["goodput"]["slo"]},
        "goodput_requests_per_s": mean("goodput.requests_per_s"),
        "requests_per_s": mean("throughput.requests_per_s"),
        "ttft_mean_ns": mean("ttft_ns.mean"),
        **{f"{part}_mean_ns": mean(f"{part}_ns.mean") for part in PARTS},
        "ttft_p99_ns": mean("ttft_ns.p99"),
        "tpot_p99_ns": mean("tpot_ns.p99"),
        "busy_share": mean("workers.utilisation"),
        "max_over_mean_busy": mean("workers.max_over_mean_busy"),
        "verdict": next((state for state in WORST_FIRST if state in states), None),
    }


def _enough(rows: list[dict[str, Any]], scale: float) -> dict[str, Any] | None:
    """The row of the fewest workers that hold the limits, and of which all larger numbers do, too."""
    found = None
    for row in reversed([row for row in rows if row["load"] == scale]):
        if not row["holds"]:
            break
        found = row
    return found


def _shown(
    rows: list[dict[str, Any]], enough: dict[float, dict[str, Any] | None], scale: float, seed: int
) -> dict[str, Any]:
    """The label of the replay whose workers are shown one by one."""
    row = enough[scale] or [row for row in rows if row["load"] == scale][-1]
    return {"load": scale, "workers": row["workers"], "seed": seed}


def _worker_rows(ran: Sequence[Ran]) -> list[dict[str, Any]]:
    """A row a worker: requests and tokens are those that count, ``busy_share`` and ``preemptions`` of the whole run."""
    return [
        {
            "worker": busy["worker"],
            "requests": served["requests"],
            "input_tokens": served["input_tokens"],
            "hit_tokens": served["hit_tokens"],
            "computed_tokens": served["input_tokens"] - served["hit_tokens"],
            "busy_share": busy["utilisation"],
            "preemptions": busy["preemptions"],
        }
        for each in ran
        for busy, served in zip(each.summary["timed"]["workers"]["each"], each.summary["workers"]["each"], strict=True)
    ]


def _advice(
    rows: list[dict[str, Any]],
    enough: dict[float, dict[str, Any] | None],
    wanted: float,
    seeds: int,
    config: RunConfig,
) -> list[str]:
    assert config.slo is not None
    slo = {name: getattr(config.slo, name) for name in ("ttft", "tpot", "e2e")}
    limits = ", ".join(f"{name.upper()} ≤ {limit}" for name, limit in slo.items() if limit is not None)
    advice = []
    for scale, row in enough.items():
        load = "" if len(enough) == 1 else f"At {scale:g} times the load: "
        tried = [each for each in rows if each["load"] == scale]
        advice.append(load + (_holds(row, tried, limits) if row else _too_few(tried, limits, wanted)))
        advice += [*_saturation(tried, load), *_idle(tried, load, config)]
    if seeds == 1:
        advice.append("One seed: how much chance there is in these figures is not known; --seeds 5 says.")
    if config.window is None:
        advice.append(
            f"The first {WARMUP.replace('%', ' %')} of the requests, which meet cold caches, are in no figure but "
            "how busy workers are."
        )
    return advice


def _holds(row: dict[str, Any], tried: list[dict[str, Any]], limits: str) -> str:
    holds = "hold" if row["workers"] > 1 else "holds"
    text = f"{_replicas(row)} {holds} {limits} for {percent(row['slo_share'])} of the requests{_interval(row)}"
    fewer = [each for each in tried if each["workers"] < row["workers"]]
    if not fewer:
        return f"{text}; fewer were not tried."
    below = fewer[-1]
    binding = min(
        (name for name in ("ttft", "tpot", "e2e") if f"{name}_share" in below), key=lambda name: below[f"{name}_share"]
    )
    return (
        f"{text}; {below['workers']:,} do for {percent(below['slo_share'])}{_interval(below)}, short of "
        f"{binding.upper()} most."
    )


def _too_few(tried: list[dict[str, Any]], limits: str, wanted: float) -> str:
    best = max(tried, key=lambda row: row["slo_share"])
    return (
        f"No number that was tried holds {limits} for {percent(wanted)} of the requests: {best['workers']:,} do for "
        f"{percent(best['slo_share'])}{_interval(best)}{_what_helps(best)}."
    )


def _what_helps(row: dict[str, Any]) -> str:
    """Whether more replicas would do, or prompts take too long by themselves."""
    alone = ratio(row["prefill_mean_ns"], row["ttft_mean_ns"])
    if alone is None or alone < MOSTLY:
        return "; try more"
    return (
        f"; {percent(alone)} of the mean TTFT is computing the prompt, which more replicas hardly shorten: more ranks, "
        "fewer tokens to compute or a wider limit do"
    )


def _saturation(tried: list[dict[str, Any]], load: str) -> list[str]:
    """What a replica serves at most, by those that cannot keep up though all have work."""
    over = [row for row in tried if row["verdict"] == "OVERLOADED" and not _uneven(row)]
    if not over:
        return []
    last = over[-1]
    return [
        f"{load}{_replicas(last)} {'are' if last['workers'] > 1 else 'is'} saturated (OVERLOADED): "
        f"{last['requests_per_s'] / last['workers']:.3g} requests/s are what one serves."
    ]


def _uneven(row: dict[str, Any]) -> bool:
    return (row["max_over_mean_busy"] or 1) > EVEN


def _idle(tried: list[dict[str, Any]], load: str, config: RunConfig) -> list[str]:
    """Whether the router keeps replicas from work, so that it is not for want of replicas that requests wait."""
    uneven = [row for row in tried if _uneven(row)]
    if not uneven:
        return []
    worst = max(uneven, key=lambda row: row["max_over_mean_busy"])
    router = "max-prefix" if config.router is None else part_name(config.router)
    return [
        f"{load}Caution: {router} loads replicas unevenly: of {worst['workers']:,} the busiest works "
        f"{worst['max_over_mean_busy']:.2f} times the mean. Another --router may need fewer; kvbench answer router "
        "compares them."
    ]


def _without_ids(trace: Trace) -> list[str]:
    if trace.ids is not None:
        return []
    return [
        f"Caution: {Path(trace.name).name} has neither block_ids nor token_ids, so nothing hits in these replays; "
        "with a cache it may take fewer."
    ]


def _replicas(row: dict[str, Any]) -> str:
    return f"{row['workers']:,} replica{'s' if row['workers'] > 1 else ''}"


def _interval(row: dict[str, Any]) -> str:
    if row["slo_share_low"] is None:
        return ""
    return f" (95 % interval {percent(row['slo_share_low'])} … {percent(row['slo_share_high'])})"


def _figures(rows: list[dict[str, Any]], scales: Sequence[float]) -> list[Figure]:
    met = [
        {
            "workers": row["workers"],
            "load": f"{row['load']:g} × the load",
            "slo_share": row["slo_share"],
            "low": row["slo_share"] if row["slo_share_low"] is None else row["slo_share_low"],
            "high": row["slo_share"] if row["slo_share_high"] is None else row["slo_share_high"],
        }
        for row in rows
    ]
    parts = [
        {"workers": row["workers"], "part": part, "seconds": row[f"{part}_mean_ns"] / NS_PER_S}
        for row in rows
        if row["load"] == scales[-1]
        for part in PARTS
        if row[f"{part}_mean_ns"] is not None
    ]
    common: dict[str, Any] = {"x": "workers", "x_title": "replicas"}
    return [
        lines(
            "attainment", "Requests within the SLO", met, y="slo_share", y_title="share of requests", series="load",
            series_title="load", percent=True, low="low", high="high", **common,
        ),
        bars(
            "ttft", "Mean TTFT by what it is made of", parts, y="seconds", y_title="seconds", series="part", **common
        ),
    ]  # fmt: skip
