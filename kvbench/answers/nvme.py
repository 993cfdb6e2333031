"""Add NVMe or a shared file system? Stacks with and without the tiers on trial, at several sizes of these.

On the clock (``compute``) a tier pays where the mean TTFT gets shorter by it. In order replay it pays where computing
what the stack then misses and reading what it hits below the GPU takes less time than computing all that the stack
without it misses, each prompt alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.stackrows import Costs, stack_rows
from kvbench.answers.tierrows import later_share, reuse_rows, tier_rows
from kvbench.answers.variants import Ran, Variant, given_settings, read_trace, run_variants, table_of
from kvbench.errors import ConfigError
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars
from kvbench.results.causes import CAUSES
from kvbench.results.headline import percent
from kvbench.units import COUNT_UNITS, NS_PER_S, TOKEN_UNITS, format_bytes, format_duration_ns, split_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.answer import Asked
    from kvbench.replays.plan import Plan
    from kvbench.report.figure import Figure

FACTORS = (0.25, 0.5, 1, 2)
"""Sizes of a tier on trial where none are given, as multiples of its own."""

NEARLY = 0.9
"""The smallest size that gives so much of what the best one gives is the one to buy."""

RULES = ("always", "cheaper")
"""Of fetching in timed replay: both are tried unless one is given."""


def answer(asked: Asked, *, trial: Sequence[str] = (), sizes: Sequence[str] = ()) -> Answer:
    """Replay the stack without the tiers on trial and with them, and say whether they pay.

    ``trial``  names of tiers; none: the last one.
    ``sizes``  capacities to try of each of them; none: :data:`FACTORS` of its own, or its own where several are
               on trial.
    """
    trace = read_trace(asked.config)
    plan = make_plan(asked.config, asked.registry, trace)
    names = _on_trial(plan, trial)
    costs = Costs.of(plan)
    settings = given_settings(asked.config) | {"prefill_tokens_per_s": costs.prefill_tokens_per_s}
    ran = run_variants(asked, stacks(settings, names, sizes))
    rows = stack_rows(ran, costs)
    reuse = reuse_rows(asked)
    return Answer(
        question="nvme",
        advice=_advice(names, rows, ran, reuse, costs),
        tables={"stacks": table_of(rows), "tiers": table_of(tier_rows(ran)), "reuse": table_of(reuse)},
        manifest=manifest_of(plan, trace, asked.registry, trial=names, sizes=list(sizes)),
        figures=_figures(rows, ran),
    )


def _on_trial(plan: Plan, trial: Sequence[str]) -> list[str]:
    tiers = {tier.name: tier for tier in plan.tiers or ()}
    if len(tiers) < 2:
        raise ConfigError(
            "no tier is on trial: give a stack, the one that may be added last, as in "
            "--tier gpu,capacity=200GiB --tier cpu,capacity=1TiB --tier nvme,capacity=4TiB,device=nvme-gen4"
        )
    names = list(trial) or [list(tiers)[-1]]
    for name in names:
        if name not in list(tiers)[1:]:
            raise ConfigError(f"--trial {name}: no such tier below the first; they are {', '.join(list(tiers)[1:])}")
        if tiers[name].device is None or tiers[name].chunk_bytes is None:
            raise ConfigError(
                f"what it takes to read from tier {name} is not known: give it a device, and say how large blocks are "
                "with --model or --block-bytes"
            )
    return names


def stacks(settings: dict[str, Any], trial: Sequence[str], sizes: Sequence[str]) -> list[Variant]:
    """The stack without the tiers on trial, with each of them alone in each of its sizes, and with all of them."""
    tiers = settings["tiers"]
    found = [_variant(settings, [tier for tier in tiers if tier["name"] not in trial])]
    given_load = settings.get("worker", {}).get("load")
    rules = (None,) if "compute" not in settings else RULES if given_load is None else (given_load,)
    for load in rules:
        for name in trial:
            others = [tier for tier in tiers if tier["name"] == name or tier["name"] not in trial]
            (given,) = (str(tier["capacity"]) for tier in tiers if tier["name"] == name)
            for size in sizes or ([given] if len(trial) > 1 else sizes_of(given)):
                stack = [tier | {"capacity": size} if tier["name"] == name else tier for tier in others]
                found.append(_variant(settings, stack, tier=name, capacity=size, load=load))
        if len(trial) > 1:
            found.append(_variant(settings, tiers, tier=" + ".join(trial), load=load))
    return found


def _variant(
    settings: dict[str, Any],
    tiers: list[dict[str, Any]],
    tier: str | None = None,
    capacity: str | None = None,
    load: str | None = None,
) -> Variant:
    label = {"stack": " + ".join(each["name"] for each in tiers), "trial": tier, "size": capacity, "load": load}
    *above, last = tiers
    stack = [*above, {key: value for key, value in last.items() if key != "promotion"}]  # there is nothing below it
    worker = dict(settings.get("worker", {})) | ({} if load is None else {"load": load})
    changed = settings | {"tiers": stack, "worker": worker}
    passed = {name for each in stack for name in each.get("path") or ()}
    changed["links"] = [link for link in settings.get("links", []) if link["name"] in passed]
    dropped = set() if changed["links"] else {"links"}
    if all(each.get("device") is None for each in stack):
        dropped |= {"prefill_tokens_per_s", "devices"}
    if all(each.get("device") is None and not each.get("path") for each in stack[1:]):
        changed["worker"] = {key: value for key, value in worker.items() if key not in ("load", "store")}
    if not above:
        changed["worker"] = {key: value for key, value in changed["worker"].items() if key != "fetches"}
        dropped |= {"placement", "walk"}
    if not changed["worker"]:
        dropped.add("worker")
    if all(each.get("scope") != "host" for each in (*stack, *changed["links"])):
        dropped.add("workers_per_host")
    return Variant(label, {name: value for name, value in changed.items() if name not in dropped})


def sizes_of(capacity: str) -> list[str]:
    """:data:`FACTORS` of a capacity, in its unit; a share is at most 100 %."""
    if capacity == "infinite":
        return [capacity]
    number, unit = split_quantity(capacity)
    scale = {**COUNT_UNITS, **TOKEN_UNITS}.get(unit, 0)
    sizes = []
    for factor in FACTORS:
        value = float(number) * factor
        if unit == "%":
            value = min(value, 100.0)
        if (value * scale).is_integer():
            sizes.append(f"{value:.12g}{unit}")
        else:
            sizes.append(f"{int(value * scale)}{'tok' if unit in TOKEN_UNITS else ''}")
    return list(dict.fromkeys(sizes))


def _advice(
    names: Sequence[str], rows: list[dict[str, Any]], ran: Sequence[Ran], reuse: list[dict[str, Any]], costs: Costs
) -> list[str]:
    advice = []
    for name in names:
        chosen, tiers = _chosen(rows, ran, name)
        advice.append(_verdict(name, chosen, rows[0], costs))
        advice += _remarks(tiers, name, reuse, costs)
    if len(names) > 1:
        best = max(rows[1:], key=lambda row: row["saved_share"])
        advice.append(f"Of all of these {best['trial']} saves most: {_time(best, rows[0], costs)}{_rule(best)}.")
    return list(dict.fromkeys(advice))


def _chosen(
    rows: list[dict[str, Any]], ran: Sequence[Ran], name: str
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The smallest size of a tier that saves nearly what the best one does, or where none pays the one that hits most:
    its row, and the records of its tiers by name."""
    found = [
        (row, {tier["tier"]: tier for tier in each.summary["tiers"]})
        for row, each in zip(rows, ran, strict=True)
        if row["trial"] == name
    ]
    found.sort(key=lambda own: own[1][name]["capacity_blocks"] or math.inf)  # None: no bound
    best = max((row for row, _ in found), key=lambda row: row["saved_share"])
    if not best["pays"]:
        return max(found, key=lambda own: own[0]["token_rate"])
    least = NEARLY * best["saved_share"]
    return next(own for own in found if own[0]["load"] == best["load"] and own[0]["saved_share"] >= least)


def _verdict(name: str, row: dict[str, Any], without: dict[str, Any], costs: Costs) -> str:
    size = "no bound" if row["size"] == "infinite" else f"{row['size']} of it"
    rates = f"the token rate is {percent(row['token_rate'])} instead of {percent(without['token_rate'])}"
    if row["pays"]:
        return f"Yes: {name} pays. With {size}{_rule(row)} {_time(row, without, costs)}; {rates}."
    return f"No: {name} does not pay. With {size}{_rule(row)} {_time(row, without, costs)}; {rates}."


def _rule(row: dict[str, Any]) -> str:
    return "" if row["load"] is None else f" (load={row['load']})"


def _time(row: dict[str, Any], without: dict[str, Any], costs: Costs) -> str:
    if "ttft_mean_ns" in row:
        after, before = (format_duration_ns(each["ttft_mean_ns"]) for each in (row, without))
        return f"the mean TTFT is {after} instead of {before}"
    after, before, read = (
        format_duration_ns(value) for value in (row["prompts_ns"], without["prompts_ns"], row["read_ns"])
    )
    return (
        f"all prompts, each alone, take {after}, {read} of it reading, instead of {before} at "
        f"{costs.prefill_tokens_per_s:,.0f} tokens/s"
    )


def _remarks(tiers: dict[str, dict[str, Any]], name: str, reuse: list[dict[str, Any]], costs: Costs) -> list[str]:
    """Break-even, wear, age against reuse and idleness of the tier ``name``."""
    tier = tiers[name]
    remarks = []
    if tier["break_even_tokens"] is None:
        remarks.append(
            f"A prompt that waits for nothing is computed sooner than {name} reads it, at "
            f"{costs.prefill_tokens_per_s:,.0f} tokens/s: what {name} can save is waiting for the GPU."
        )
    elif tier["read_operations"]:
        remarks.append(
            f"Reading from {name} beats computing from {_tokens(int(tier['break_even_tokens']) + 1)} on; a read brings "
            f"{_tokens(tier['hit_tokens'] // tier['read_operations'])} on average."
        )
    ages = [
        (each, tiers[each]["retention"]["mean_s"])
        for each in (list(tiers)[list(tiers).index(name) - 1], name)
        if tiers[each]["retention"]["mean_s"] is not None
    ]
    for each, age_s in ages:
        later = later_share(reuse, age_s * NS_PER_S)
        remarks.append(
            f"{each} evicts blocks {format_duration_ns(age_s * NS_PER_S)} after they came, on average; at least "
            f"{percent(later)} of the uses come longer after the last one."
        )
    remarks += _wear(tier)
    for flag in tier["flags"]:
        cause = "" if tier["cause"] is None else f" ({tier['cause']}: {CAUSES[tier['cause']]})"
        remarks.append(f"{name} is {flag}{cause}.")
    return remarks


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def _wear(tier: dict[str, Any]) -> list[str]:
    """Bytes a day, and drive writes beside what the drive is rated for."""
    written, writes, rated = (
        tier[key] for key in ("written_bytes_per_day", "drive_writes_per_day", "rated_drive_writes_per_day")
    )
    if written is None:
        return []
    text = f"{tier['tier']} is written {format_bytes(round(written))} a day"
    if writes is None or rated is None:
        return [f"{text}."]
    text += f", {writes:.3g} times its capacity, and is rated for {rated:g}"
    if writes > rated:
        text += f": it takes drives of {format_bytes(round(written / rated))} in all, or an admission filter"
    return [f"{text}."]


def _figures(rows: list[dict[str, Any]], ran: Sequence[Ran]) -> list[Figure]:
    named = [f"{each['stack']}{_sized(each)}{_rule(each)}" for each in rows]
    hits = [
        {"stack": name, "tier": tier["tier"], "token_rate": tier["token_rate"]}
        for name, each in zip(named, ran, strict=True)
        for tier in each.summary["tiers"]
    ]
    if "ttft_mean_ns" in rows[0]:
        parts = {part: f"{part}_mean_ns" for part in ("queue", "fetch", "prefill")}
        title = "Mean TTFT by what it is made of"
    else:
        parts = {"compute": "compute_ns", "read": "read_ns"}
        title = "Time of all prompts, each alone"
    times = [
        {"stack": name, "part": part, "seconds": row[key] / NS_PER_S}
        for name, row in zip(named, rows, strict=True)
        for part, key in parts.items()
    ]
    common: dict[str, Any] = {"x": "stack", "x_title": "stack", "horizontal": True}
    return [
        bars("hits", "Hits by tier", hits, y="token_rate", y_title="token rate", series="tier", percent=True, **common),
        bars("times", title, times, y="seconds", y_title="seconds", series="part", **common),
    ]


def _sized(row: dict[str, Any]) -> str:
    return "" if row["size"] is None else f" {row['size']}"
