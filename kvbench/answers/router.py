"""Which router policy? Hits against load and latency, and what is left of the best where its view is late or wrong."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.variants import (
    Ran,
    Variant,
    given_settings,
    number_of,
    part_name,
    read_trace,
    run_variants,
    table_of,
)
from kvbench.answers.words import points
from kvbench.config import load_config
from kvbench.errors import ConfigError
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars
from kvbench.report.figure import points as point_chart
from kvbench.results.headline import percent
from kvbench.units import format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.answer import Asked
    from kvbench.report.figure import Figure

ROUTERS = (
    *("round-robin", "least-loaded", "power-of-two", "max-prefix", "consistent-hash"),
    *("dynamo-kv", "llmd", "pstack-loadaware", "sglang-cache-aware", "missing-plus-load"),
)
"""Tried where none is named: those that look at nothing, at load, at prefixes, and what gateways do by default."""

DELAYS = ("1s", "10s", "30s")
LOSSES = (0.01, 0.1)
VIEWS = (2, 4)
"""What the best router is put to: events that come later, events that are lost, and more routers with views of their
own. In order replay there is one more: a worker restarts with an empty cache half way."""

EVEN = 1.25
"""The busiest worker of an order replay may compute so many times the mean; above it a worker would be the queue."""

LEAST = 0.0001
"""A token rate that is lower by less is as high."""

TOKENS = ("best", "predicted", "delivered", "routed_away", "stale", "unforeseen")

CACHE = "cache"
RESTART = """[[fault]]
kind = "restart"
tier = "{tier}"
worker = 0
from_request = {request}
"""


def answer(
    asked: Asked,
    *,
    candidates: Sequence[Any] = (),
    delays: Sequence[str] = DELAYS,
    losses: Sequence[float | str] = LOSSES,
    views: Sequence[int | str] = VIEWS,
) -> Answer:
    """Replay every router, and the best one under worse conditions.

    ``candidates``  with their weights, as in ``llmd,prefix=3``; none: :data:`ROUTERS`.
    ``delays``   lags after which events reach the index; ``losses`` shares of messages that are lost; ``views``
                 numbers of routers side by side. An empty list leaves a trial out.
    """
    config = asked.config
    if config.workers < 2:
        raise ConfigError("one worker leaves a router no choice; give --workers")
    trace = read_trace(config)
    plan = make_plan(config, asked.registry, trace)
    settings = given_settings(config)
    chosen = list(candidates) or list(ROUTERS)
    conditions = _conditions(settings, delays, losses, views)
    for change in conditions.values():
        load_config(None, settings | {"router": chosen[0]} | change)
    left_out: list[str] = []
    variants = [Variant({"router": part_name(each)}, settings | {"router": each}) for each in chosen]
    ran = run_variants(asked, variants, left_out=left_out)
    rows = router_rows(ran)
    best = best_of(rows)
    chosen_one = settings | {"router": next(each for each in chosen if part_name(each) == best["router"])}
    trials = [
        Variant({"trial": name, "router": best["router"]}, chosen_one | each) for name, each in conditions.items()
    ]
    tried = run_variants(asked, trials, name="sweep-trials", left_out=left_out)
    if not {"faults", "compute"} & set(settings):
        tried += _restarted(asked, chosen_one, ran[0].summary)
    trial_rows = [_row(each) for each in tried]
    return Answer(
        question="router",
        advice=[*_advice(rows, best, trial_rows, ran[0].summary), *left_out],
        tables={"routers": table_of(rows), "trials": table_of(trial_rows)},
        manifest=manifest_of(
            plan,
            trace,
            asked.registry,
            candidates=[part_name(each) for each in chosen],
            delays=list(delays),
            losses=list(losses),
            views=list(views),
        ),
        figures=_figures(rows, trial_rows),
    )


def router_rows(ran: Sequence[Ran]) -> list[dict[str, Any]]:
    """A row a router; ``front`` is true where no other is as good in hits, evenness and (timed) the p99 of TTFT, and
    better in one."""
    rows = [_row(each) for each in ran]
    goals = [(name, sign) for name, sign in GOALS.items() if rows[0].get(name) is not None]
    for row in rows:
        row["front"] = not any(_beats(other, row, goals) for other in rows)
    return rows


GOALS = {"token_rate": 1, "max_over_mean_computed_tokens": -1, "ttft_p99_ns": -1}
"""Figures that are to be high (1) or low (-1)."""


def _beats(one: dict[str, Any], other: dict[str, Any], goals: Sequence[tuple[str, int]]) -> bool:
    gains = [sign * (one[name] - other[name]) for name, sign in goals]
    return all(gain >= 0 for gain in gains) and any(gain > 0 for gain in gains)


def _row(ran: Ran) -> dict[str, Any]:
    summary = ran.summary
    workers = summary["workers"]
    row = {
        **ran.label,
        "token_rate": summary["rates"]["token"],
        "max_over_mean_requests": workers["max_over_mean_requests"],
        "max_over_mean_computed_tokens": workers["max_over_mean_computed_tokens"],
        **{f"{name}_tokens": summary["routing"][f"{name}_tokens"] for name in TOKENS},
    }
    if "timed" not in summary:
        return row
    timed = summary["timed"]
    return row | {
        **{f"ttft_{name}_ns": timed["ttft_ns"][name] for name in ("mean", "p50", "p99")},
        "slo_share": None if timed["goodput"] is None else timed["goodput"]["share_of_arrived"],
        "verdict": timed["verdict"]["state"],
    }


def best_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The router to recommend: on the clock the one that keeps the SLO most often, and the lowest p99 of TTFT; in order
    replay the most hits among those that load the workers evenly (:data:`EVEN`), or else the most even one."""
    if "ttft_p99_ns" in rows[0]:
        return min(rows, key=lambda row: (-(row["slo_share"] or 0), row["ttft_p99_ns"]))
    even = [row for row in rows if row["max_over_mean_computed_tokens"] <= EVEN]
    if not even:
        return min(rows, key=lambda row: row["max_over_mean_computed_tokens"])
    return max(even, key=lambda row: row["token_rate"])


def _conditions(
    settings: dict[str, Any], delays: Sequence[str], losses: Sequence[float | str], views: Sequence[int | str]
) -> dict[str, dict[str, Any]]:
    """What the best router is put to, one at a time: what it is called, and the settings that it takes."""
    channel = settings.get("event_channel", {})
    changes: dict[str, dict[str, Any]] = {"as it is": {}}
    changes |= {f"events {delay} late": {"event_channel": channel | {"delay": delay}} for delay in delays}
    for loss in (number_of(each, float, "--loss") for each in losses):
        changes[f"{100 * loss:g} % of the messages lost"] = {"event_channel": channel | {"loss": loss}}
    for count in (number_of(each, int, "--views") for each in views):
        changes[f"{count} routers"] = {"routers": count}
    return changes


def _restarted(asked: Asked, settings: dict[str, Any], summary: dict[str, Any]) -> list[Ran]:
    """The replay in which a worker restarts, of whose fault plan nothing is kept."""
    restarted = _with_tiers(settings)
    request = summary["requests"]["arrived"] // 2
    with TemporaryDirectory() as folder:
        path = Path(folder) / "restart.toml"
        path.write_text(RESTART.format(tier=restarted["tiers"][0]["name"], request=request))
        label = {"trial": "worker 0 restarts half way", "router": part_name(settings["router"])}
        return run_variants(asked, [Variant(label, restarted | {"faults": str(path)})], name=None)


def _with_tiers(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the cache of a worker as a tier, which faults are of."""
    if "tiers" in settings:
        return dict(settings)
    tier = {"name": CACHE, "capacity": settings.get("capacity", "infinite"), "policy": settings.get("policy")}
    rest = {name: value for name, value in settings.items() if name not in ("capacity", "policy")}
    return rest | {"tiers": [tier]}


def _advice(
    rows: Sequence[dict[str, Any]], best: dict[str, Any], tried: Sequence[dict[str, Any]], summary: dict[str, Any]
) -> list[str]:
    infinite = summary["infinite_rates"]["token"]
    text = (
        f"{best['router']}: {percent(best['token_rate'])} of the input tokens hit, of {percent(infinite)} in infinite "
        f"caches, and the busiest worker computes {best['max_over_mean_computed_tokens']:.2f} times the mean"
    )
    if "ttft_p99_ns" in best:
        text += f"; TTFT p50 {format_duration_ns(best['ttft_p50_ns'])}, p99 {format_duration_ns(best['ttft_p99_ns'])}"
        if best["slo_share"] is not None:
            text += f", {percent(best['slo_share'])} of the requests within the SLO"
    advice = [f"{text}."]
    most = max(rows, key=lambda row: row["token_rate"])
    if most is not best:
        advice.append(
            f"{most['router']} hits {points(most['token_rate'] - best['token_rate'])} more, at "
            f"{most['max_over_mean_computed_tokens']:.2f} times the mean{_p99(most)}."
        )
    front = [row["router"] for row in rows if row["front"]]
    goals = "hits, load and p99 at once" if "ttft_p99_ns" in best else "hits and load at once"
    advice.append(f"None of those tried is better in {goals} than {_any_of(front)}.")
    before, others = tried[0], tried[1:]
    if others:
        worst = min(others, key=lambda row: row["token_rate"])
        lost = before["token_rate"] - worst["token_rate"]
        advice.append(
            f"Of the trials this costs {best['router']} most: {worst['trial']}, {percent(worst['token_rate'])} hit, "
            f"{points(lost)} less than {before['trial']}."
            if lost >= LEAST
            else f"None of the trials costs {best['router']} hits."
        )
    return advice


def _any_of(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _p99(row: dict[str, Any]) -> str:
    return f" and TTFT p99 {format_duration_ns(row['ttft_p99_ns'])}" if "ttft_p99_ns" in row else ""


def _figures(rows: Sequence[dict[str, Any]], tried: Sequence[dict[str, Any]]) -> list[Figure]:
    timed = "ttft_p99_ns" in rows[0]
    x, title = (
        ("ttft_p99_s", "TTFT p99, seconds")
        if timed
        else ("max_over_mean", "computed tokens of the busiest worker / mean")
    )
    shown = [
        {
            "router": row["router"],
            "token_rate": row["token_rate"],
            x: row["ttft_p99_ns"] / 1e9 if timed else row["max_over_mean_computed_tokens"],
        }
        for row in rows
    ]
    goals = [("token_rate", 1), (x, -1)]
    for row in shown:
        row["front"] = not any(_beats(other, row, goals) for other in shown)
    trials = [{"trial": row["trial"], "token_rate": row["token_rate"]} for row in tried]
    return [
        point_chart(
            "front",
            "Hits against load",
            shown,
            x=x,
            y="token_rate",
            x_title=title,
            y_title="token rate",
            label="router",
            percent=True,
            x_log=True,
            front="front",
        ),
        bars(
            "trials",
            f"{tried[0]['router']} under worse conditions",
            trials,
            x="trial",
            y="token_rate",
            x_title="trial",
            y_title="token rate",
            horizontal=True,
            percent=True,
        ),
    ]
