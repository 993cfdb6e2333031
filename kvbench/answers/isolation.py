"""What do isolation and sharing cost? Tenants apart, sharing an opening, sharing all, and with quotas, in one cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.columnrates import column_rates
from kvbench.answers.variants import Ran, Variant, given_settings, run_variants, table_of
from kvbench.answers.words import points
from kvbench.errors import ConfigError
from kvbench.pairs import key_values
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars, matrix
from kvbench.results.headline import percent
from kvbench.results.neighbours import NeighbourPass, Neighbours
from kvbench.results.run import open_configured, run_replay
from kvbench.tierconfig import TierConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbench.answers.answer import Asked
    from kvbench.config import RunConfig
    from kvbench.replays.plan import Plan
    from kvbench.report.figure import Figure
    from kvbench.trace.reader import Trace

ALL_BLOCKS = 2**31 - 1
SHARED = (1, 2, 4, 8, 16, 32)
"""Leading blocks that tenants share, in the replays between nothing and everything."""

NEARLY = 0.9
"""An opening that gets so much of what sharing all gets is enough."""

CACHE = "cache"
LRU, QUOTAS = "lru", "quotas"
"""How the one cache evicts."""

OTHERS = "(others)"
MOST_TENANTS = 12
"""Tenants that the matrix shows one by one: those with most input tokens."""

KEPT_APART = ("adapter", "model")
"""Columns beside the tenant that keep blocks apart, whatever tenants share."""


def answer(asked: Asked, *, capacity: str = "10%", quota: Sequence[str] = ()) -> Answer:
    """Replay the trace under each rule. Where tenants share some leading blocks, ``config.shared_blocks`` is how many;
    with 0, several numbers are tried.

    ``capacity``  of the one cache; a share is that of the distinct blocks with tenants apart.
    ``quota``     ``TENANT=SIZE``, as of a tier; none: an even part for each, of which is lent what it does not need.
    """
    if capacity == "infinite":
        raise ConfigError("--capacity infinite: nothing is evicted, so no tenant is in another's way; give a size")
    alone = msgspec.structs.replace(asked.config, shared_blocks=0)
    config = msgspec.structs.replace(alone, capacity=capacity, policy="lru").check()
    trace = open_configured(config)
    plan = make_plan(config, asked.registry, trace)
    apart = _neighbours(asked, plan, trace)
    if len(apart.names) < 2:
        raise ConfigError(f"all requests of {trace.name} are of one tenant, so there is nobody to keep apart")
    assert apart.capacity_blocks is not None
    blocks, quotas = apart.capacity_blocks, key_values(quota, "--quota")
    fair = _neighbours(asked, make_plan(_with_quotas(alone, blocks, quotas), asked.registry, trace), trace)
    tried = (asked.config.shared_blocks,) if asked.config.shared_blocks else SHARED
    base = given_settings(alone) | {"capacity": blocks, "policy": "lru", "belady": "off"}
    ran = run_variants(
        asked, [Variant({"shared_blocks": n}, base | {"shared_blocks": n}) for n in (0, *tried, ALL_BLOCKS)]
    )
    rules = _rules(ran, fair)
    tenants = _tenant_rows(apart, fair, blocks, quotas)
    tables = {
        "rules": table_of(rules),
        "tenants": table_of(tenants),
        "evicted-by": table_of([*_most_first(_pairs(LRU, apart)), *_most_first(_pairs(QUOTAS, fair))]),
    }
    for column in KEPT_APART:
        if column in trace.schema.names:
            tables[f"by-{column}"] = table_of(_by(asked, config, trace, column))
    return Answer(
        question="isolation",
        advice=_advice(apart, fair, rules, tenants),
        tables=tables,
        manifest=manifest_of(plan, trace, asked.registry, quota=quotas, shared_blocks=list(tried)),
        figures=_figures(rules, apart),
    )


def _neighbours(asked: Asked, plan: Plan, trace: Trace) -> Neighbours:
    found = NeighbourPass(plan, trace)
    done = 0
    for rows in found.run():
        done += rows
        if asked.row_progress is not None:
            asked.row_progress(done, trace.rows)
    return found.found()


def _with_quotas(config: RunConfig, blocks: int, quotas: Mapping[str, str]) -> RunConfig:
    """The cache with a part for each tenant."""
    if not quotas:
        return msgspec.structs.replace(config, capacity=blocks, policy="tenant-lru").check()
    return msgspec.structs.replace(config, tiers=[TierConfig(name=CACHE, capacity=blocks, quotas={**quotas})]).check()


def _rules(ran: Sequence[Ran], fair: Neighbours) -> list[dict[str, Any]]:
    """A row a rule: what of the tokens hits, and what that is less than with all shared."""
    shared = ran[-1].summary["rates"]["token"]
    rows = []
    for one in ran:
        count = one.label["shared_blocks"]
        named = {0: "apart", 1: "first block shared", ALL_BLOCKS: "all shared"}
        rule = named.get(count, f"first {count:,} blocks shared")
        rate = one.summary["rates"]["token"]
        rows.append(
            {
                "rule": rule,
                "shared_blocks": None if count == ALL_BLOCKS else count,
                "eviction": LRU,
                "token_rate": rate,
                "infinite_token_rate": one.summary["infinite_rates"]["token"],
                "hit_blocks": one.summary["blocks"]["hit"],
                "cost_rate": shared - rate,
            }
        )
    rate = fair.rate()
    bound = rows[0]["infinite_token_rate"]
    quotas = {"rule": "apart", "shared_blocks": 0, "eviction": QUOTAS, "token_rate": rate, "infinite_token_rate": bound}
    return [rows[0], quotas | {"hit_blocks": fair.hit_blocks, "cost_rate": shared - rate}, *rows[1:]]


def _tenant_rows(apart: Neighbours, fair: Neighbours, blocks: int, quotas: dict[str, str]) -> list[dict[str, Any]]:
    """A row a tenant, apart from the others, by LRU and with quotas; those with most input tokens first."""
    rows = []
    for at, name in enumerate(apart.names):
        rows.append(
            {
                "tenant": name,
                "requests": int(apart.figures["requests"][at]),
                "input_tokens": int(apart.figures["input_tokens"][at]),
                "infinite_token_rate": apart.rates("infinite_hit_tokens")[at],
                "token_rate": apart.rates()[at],
                "quota_token_rate": fair.rates()[at],
                "mean_blocks": float(apart.mean_blocks[at]),
                "peak_blocks": int(apart.peak_blocks[at]),
                "quota": quotas.get(name, "lent only") if quotas else f"{blocks // len(apart.names):,}",
                "mean_blocks_with_quota": float(fair.mean_blocks[at]),
                "peak_blocks_with_quota": int(fair.peak_blocks[at]),
                "evicted_by_others_blocks": int(apart.evicted[at].sum() - apart.evicted[at, at]),
                "lost_to_others_blocks": int(apart.lost[at].sum() - apart.lost[at, at]),
                "evicted_of_others_blocks": int(apart.evicted[:, at].sum() - apart.evicted[at, at]),
            }
        )
    return sorted(rows, key=lambda row: -row["input_tokens"])


def _pairs(eviction: str, found: Neighbours) -> list[dict[str, Any]]:
    """The matrix as rows: blocks of a tenant that were evicted for another, and those that it stored again after.
    Tenants beyond the MOST_TENANTS largest are one."""
    order = np.argsort(-found.figures["input_tokens"], kind="stable")
    shown = [found.names[at] for at in order[:MOST_TENANTS]]
    place = np.full(len(found.names), len(shown))
    place[order[:MOST_TENANTS]] = np.arange(len(shown))
    if len(found.names) > len(shown):
        shown.append(OTHERS)
    sums = np.zeros((2, len(shown), len(shown)), np.int64)
    for into, values in zip(sums, (found.evicted, found.lost), strict=True):
        np.add.at(into, (place[:, None], place[None, :]), values)
    return [
        {
            "eviction": eviction,
            "tenant": tenant,
            "evicted_by": other,
            "evicted_blocks": int(sums[0, row, column]),
            "lost_blocks": int(sums[1, row, column]),
        }
        for row, tenant in enumerate(shown)
        for column, other in enumerate(shown)
    ]


def _most_first(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(pairs, key=lambda row: -row["evicted_blocks"])


def _by(asked: Asked, config: RunConfig, trace: Trace, column: str) -> list[dict[str, Any]]:
    """Hits by the values of a column that keeps blocks apart; those with most input tokens first."""
    found = run_replay(config, asked.registry, keep_requests=True).requests
    assert found is not None
    return sorted(column_rates(found, trace, column), key=lambda row: -row["input_tokens"])


def _advice(
    apart: Neighbours, fair: Neighbours, rules: list[dict[str, Any]], tenants: list[dict[str, Any]]
) -> list[str]:
    alone, quotas, *some, shared = rules
    cost = shared["token_rate"] - alone["token_rate"]
    advice = [
        f"Keeping {len(tenants):,} tenants apart costs {points(cost)}: {percent(alone['token_rate'])} of input tokens "
        f"hit in {apart.capacity_blocks:,} blocks, and {percent(shared['token_rate'])} if they shared all they have in "
        "common."
    ]
    enough = next((row for row in some if row["token_rate"] - alone["token_rate"] >= NEARLY * cost), None)
    if cost > 0 and enough is not None:
        advice.append(
            f"With the {enough['rule']} they hit {percent(enough['token_rate'])}: that saves "
            f"{points(enough['token_rate'] - alone['token_rate'])}, and nobody shares what comes after."
        )
    noisy = max(tenants, key=lambda row: row["evicted_of_others_blocks"])
    hurt = max(tenants, key=lambda row: row["lost_to_others_blocks"])
    if noisy["evicted_of_others_blocks"]:
        advice.append(
            f"The noisiest neighbour under LRU is {noisy['tenant']}: {noisy['evicted_of_others_blocks']:,} blocks of "
            f"others are evicted for it. {hurt['tenant']} loses most: it stores {hurt['lost_to_others_blocks']:,} "
            "blocks again that were evicted for others."
        )
    gains = [(row["quota_token_rate"] or 0.0) - (row["token_rate"] or 0.0) for row in tenants]
    winner, loser = (tenants[int(choose(gains))] for choose in (np.argmax, np.argmin))
    advice.append(
        f"With quotas {percent(quotas['token_rate'])} hit in all, {points(quotas['token_rate'] - alone['token_rate'])} "
        f"beside LRU; {_change(winner)}, {_change(loser)}."
    )
    return advice


def _change(row: dict[str, Any]) -> str:
    return f"{row['tenant']} goes from {percent(row['token_rate'])} to {percent(row['quota_token_rate'])}"


def _figures(rules: list[dict[str, Any]], apart: Neighbours) -> list[Figure]:
    named = [{"rule": f"{row['rule']}, {row['eviction']}", "token_rate": row["token_rate"]} for row in rules]
    return [
        bars(
            "hits-by-rule",
            "Hits by what tenants share",
            named,
            x="rule",
            y="token_rate",
            horizontal=True,
            percent=True,
            x_title="rule",
            y_title="token rate",
        ),
        matrix(
            "evicted-by",
            "Blocks evicted for whom, LRU",
            _pairs(LRU, apart),
            row="tenant",
            column="evicted_by",
            value="evicted_blocks",
            row_title="whose blocks",
            column_title="evicted for",
            value_title="blocks",
            others=[("lost_blocks", "stored again after")],
        ),
    ]
