"""Which eviction and admission policy? Policies over capacities between their bounds, under stress, and by tenant."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.columnrates import column_rates
from kvbench.answers.stress import KINDS, Stress
from kvbench.answers.stress import check as check_stress
from kvbench.answers.variants import Ran, Variant, given_settings, part_name, read_trace, run_variants, table_of
from kvbench.answers.words import points
from kvbench.config import load_config
from kvbench.errors import ConfigError
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars, matrix
from kvbench.results.headline import percent
from kvbench.results.run import open_configured, run_replay
from kvbench.serving.device import hits_lost_per_byte_avoided
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.answer import Asked
    from kvbench.config import RunConfig
    from kvbench.report.figure import Figure
    from kvbench.trace.reader import Trace

POLICIES = ("lru", "fifo", "slru", "lfu-da", "arc", "s3-fifo", "sieve", "w-tinylfu")
CAPACITIES = ("1%", "5%", "20%")
ADMISSIONS = ("min-count", "tinylfu")
SHARE = 0.2
"""Of the requests of a mix that are stress."""

CACHE = "cache"
TENANT = "tenant"
GIB = 2**30
NEAR = 0.01
"""A token rate that is higher by less is no reason to change the policy."""


def answer(
    asked: Asked,
    *,
    policies: Sequence[str] = POLICIES,
    capacities: Sequence[str] = CAPACITIES,
    admissions: Sequence[str] = ADMISSIONS,
    stress: float = SHARE,
) -> Answer:
    """Replay policies at capacities; at the middle one, the stress, the filters and the tenants.

    ``policies``, ``capacities``  of the last tier, where a stack is given.
    ``admissions``  filters to try with the best policy; none: no filter.
    ``stress``      share of the requests of a mix that are a scan or a loop; 0: no stress.

    What a block costs each policy is measured where there is a clock, and is in no table.
    """
    config = asked.config
    if config.compute is not None:
        raise ConfigError(
            "policies are compared in order replay, beside a bound that has no clock; leave --compute out"
        )
    if not 0 <= stress < 1:
        raise ConfigError(f"--stress {stress:g} must be a share of at least 0 and below 1")
    trace = read_trace(config)
    if stress:
        check_stress(trace)
    plan = make_plan(config, asked.registry, trace)
    cells = Cells(config)
    ran = run_variants(asked, [cells.of(policy, capacity) for capacity in capacities for policy in policies])
    rows = [_row(each) for each in ran]
    blocks = {row["capacity"]: row["capacity_blocks"] for row in rows}
    middle = sorted(capacities, key=lambda each: blocks[str(each)])[len(capacities) // 2]
    at_middle = [row for row in rows if row["capacity"] == str(middle)]
    best = max(at_middle, key=lambda row: row["token_rate"])
    choice = next(policy for policy in policies if part_name(policy) == best["policy"])
    found = ran[rows.index(best)].summary
    tenants, costs = _replayed(asked, trace, cells, policies, middle)
    tables = {
        "policies": rows,
        "stress": _stressed(asked, trace, cells, policies, found, stress) if stress else [],
        "admission": _filtered(asked, cells, choice, middle, admissions),
        "tenants": tenants,
    }
    return Answer(
        question="eviction",
        advice=_advice(tables, best, at_middle),
        tables={name: table_of(found) for name, found in tables.items() if found},
        manifest=manifest_of(
            plan,
            trace,
            asked.registry,
            policies=[part_name(each) for each in policies],
            capacities=[str(each) for each in capacities],
            admissions=[part_name(each) for each in admissions],
            stress=stress,
        ),
        figures=_figures(tables),
        wall_clock={"ns_a_block": costs} if costs else {},
    )


class Cells:
    """Makes the replays: a policy and a capacity of the last tier of a stack, or of the one cache there is."""

    def __init__(self, config: RunConfig) -> None:
        self._settings = {"belady": "auto", **given_settings(config)}
        self._settings.pop("capacity", None)
        self._settings.pop("policy", None)
        self._tiers = self._settings.pop("tiers", None)

    def of(self, policy: Any, capacity: Any, admission: Any = None, **label: Any) -> Variant:
        """``admission`` makes a cache without a stack a stack of one tier, which is what has filters."""
        label = {**label, "capacity": str(capacity), "policy": part_name(policy)}
        given: dict[str, Any] = {"capacity": capacity, "policy": policy}
        if self._tiers is None and admission is None:
            return Variant(label, self._settings | given)
        *above, last = self._tiers or [{"name": CACHE}]
        if admission is not None:
            label["admission"] = part_name(admission)
            given["admission"] = admission
        return Variant(label, self._settings | {"tiers": [*above, last | given]})


def _row(ran: Ran) -> dict[str, Any]:
    summary = ran.summary
    rate, bound = summary["rates"]["token"], summary["belady_rates"]["token"]
    return {
        **ran.label,
        "capacity_blocks": summary["capacity_blocks"],
        "token_rate": rate,
        "belady_token_rate": bound,
        "gap_token_rate": None if bound is None else bound - rate,
        "infinite_token_rate": summary["infinite_rates"]["token"],
        "stored_blocks": summary["blocks"]["stored"],
        "evicted_blocks": summary["blocks"]["evicted"],
    }


def _stressed(
    asked: Asked, trace: Trace, cells: Cells, policies: Sequence[Any], summary: dict[str, Any], share: float
) -> list[dict[str, Any]]:
    """A row for each policy and mix. Prompts of the stress are as long as those of the trace are on average, and the
    capacity is that of ``summary``, in blocks, for a share would be one of the mix. A loop is larger than the caches of
    all workers together, for each prompt may have one to itself."""
    blocks, in_all = summary["capacity_blocks"], summary["capacity_blocks"] * summary["workers"]["count"]
    if "tiers" in summary:
        blocks, in_all = (summary["tiers"][-1][name] for name in ("capacity_blocks", "all_stores_blocks"))
    prompt = max(round(summary["blocks"]["full"] / summary["requests"]["done"]), 1)
    rows = []
    for kind in KINDS:
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind}.arrow"
            Stress.of(kind, share, prompt, in_all, asked.config.seed).write(trace, path)
            variants = [cells.of(policy, blocks, mix=kind) for policy in policies]
            variants = [Variant(each.label, each.settings | {"trace": str(path), "belady": "on"}) for each in variants]
            rows += [_row(each) for each in run_variants(asked, variants, name=f"sweep-{kind}")]
    return rows


def _filtered(
    asked: Asked, cells: Cells, policy: Any, capacity: Any, admissions: Sequence[Any]
) -> list[dict[str, Any]]:
    """A row for each filter: what it keeps out of the tier, and what that costs."""
    if not admissions:
        return []
    variants = [cells.of(policy, capacity, admission) for admission in ("all", *admissions)]
    ran = run_variants(asked, variants, name="sweep-admission")
    everything = ran[0].summary["tiers"][-1]
    return [_filter_row(each, everything) for each in ran]


def _filter_row(ran: Ran, everything: dict[str, Any]) -> dict[str, Any]:
    tier = ran.summary["tiers"][-1]
    unit = "blocks" if tier["written_bytes"] is None else "bytes"
    written, all_written = tier[f"written_{unit}"], everything[f"written_{unit}"]
    lost = hits_lost_per_byte_avoided(everything["hit_blocks"], all_written, tier["hit_blocks"], written)
    return {
        **ran.label,
        "token_rate": ran.summary["rates"]["token"],
        "hit_blocks": tier["hit_blocks"],
        f"written_{unit}": written,
        "written_bytes_per_day": tier["written_bytes_per_day"],
        "drive_writes_per_day": tier["drive_writes_per_day"],
        "avoided_share": 1 - written / all_written if all_written else None,
        f"lost_hit_blocks_per_avoided_{'block' if unit == 'blocks' else 'gib'}": (
            lost if lost is None or unit == "blocks" else lost * GIB
        ),
    }


def _replayed(
    asked: Asked, trace: Trace, cells: Cells, policies: Sequence[Any], capacity: Any
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A row for each policy and tenant, where there are tenants, and nanoseconds that each policy takes a block."""
    rows: list[dict[str, Any]] = []
    costs = {}
    has_tenants = TENANT in trace.schema.names
    for policy in policies if has_tenants or asked.clock is not None else ():
        cell = cells.of(policy, capacity)
        config = load_config(None, cell.settings | {"belady": "off"})
        result = run_replay(config, asked.registry, keep_requests=has_tenants, clock=asked.clock)
        if asked.clock is not None:
            costs[part_name(policy)] = NS_PER_S / result.wall_clock["blocks_per_s"]
        if result.requests is not None:
            rows += [cell.label | row for row in column_rates(result.requests, open_configured(asked.config), TENANT)]
    return rows, costs


def _advice(
    tables: dict[str, list[dict[str, Any]]], best: dict[str, Any], at_middle: list[dict[str, Any]]
) -> list[str]:
    rows = tables["policies"]
    lru = next((row for row in at_middle if row["policy"] == "lru"), None)
    text = f"{best['policy']} hits {percent(best['token_rate'])} at {best['capacity_blocks']:,} blocks{_gap(best)}"
    if lru is not None and best is not lru:
        gain = best["token_rate"] - lru["token_rate"]
        if gain < NEAR:
            text = (
                f"lru will do: at {best['capacity_blocks']:,} blocks it hits {percent(lru['token_rate'])}, "
                f"{points(gain)} less than {best['policy']}, the best{_gap(best)}"
            )
        else:
            text += f", {points(gain)} more than lru"
    advice = [f"{text}."]
    capacities = dict.fromkeys(row["capacity"] for row in rows)
    if len(capacities) > 1:
        winners = [
            max((row for row in rows if row["capacity"] == each), key=lambda row: row["token_rate"])
            for each in capacities
        ]
        named = ", ".join(f"{row['policy']} at {row['capacity_blocks']:,}" for row in winners)
        advice.append(f"Best by capacity: {named} blocks.")
    advice += _of_stress(tables["stress"], best)
    advice += _of_filters(tables["admission"])
    advice += _of_tenants(tables["tenants"], best)
    return advice


def _gap(row: dict[str, Any]) -> str:
    return "" if row["gap_token_rate"] is None else f", {points(row['gap_token_rate'])} below the bound of Belady"


def _of_stress(stressed: list[dict[str, Any]], best: dict[str, Any]) -> list[str]:
    advice = []
    for kind in dict.fromkeys(row["mix"] for row in stressed):
        mixed = [row for row in stressed if row["mix"] == kind]
        own = next(row for row in mixed if row["policy"] == best["policy"])
        top = max(mixed, key=lambda row: row["token_rate"])
        text = f"With a {kind} mixed in ({KINDS[kind]}), {own['policy']} hits {percent(own['token_rate'])}{_gap(own)}"
        if top is not own:
            text += f"; {top['policy']} hits {percent(top['token_rate'])}"
        advice.append(f"{text}.")
    return advice


def _of_filters(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"Admission by {row['admission']} avoids {percent(row['avoided_share'])} of the writes and hits "
        f"{percent(row['token_rate'])} instead of {percent(rows[0]['token_rate'])}."
        for row in rows[1:]
        if row["avoided_share"] is not None
    ]


def _of_tenants(rows: list[dict[str, Any]], best: dict[str, Any]) -> list[str]:
    own = [row for row in rows if row["policy"] == best["policy"]]
    if len(own) < 2:
        return []
    own.sort(key=lambda row: row["token_rate"])
    least, most = own[0], own[-1]
    return [
        f"Of {len(own):,} tenants {least['tenant']} hits least with {best['policy']}, "
        f"{percent(least['token_rate'])}, and {most['tenant']} most, {percent(most['token_rate'])}."
    ]


def _figures(tables: dict[str, list[dict[str, Any]]]) -> list[Figure]:
    shown = [
        {name: row[name] for name in ("policy", "capacity_blocks", "token_rate", "gap_token_rate")}
        for row in tables["policies"]
    ]
    figures = [
        matrix(
            "policies",
            "Hits by policy and capacity",
            shown,
            row="policy",
            column="capacity_blocks",
            value="token_rate",
            row_title="policy",
            column_title="capacity (blocks)",
            value_title="token rate",
            percent=True,
            others=[("gap_token_rate", "below Belady")],
        )
    ]
    if tables["stress"]:
        mixes = [{name: row[name] for name in ("policy", "mix", "token_rate")} for row in tables["stress"]]
        figures.append(
            bars(
                "stress",
                "Hits under stress",
                mixes,
                x="policy",
                y="token_rate",
                series="mix",
                x_title="policy",
                y_title="token rate",
                stacked=False,
                percent=True,
            )
        )
    return figures
