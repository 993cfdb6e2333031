"""Cells that one pass of the exact LRU curve answers: plain LRU over one tier, differing only in capacity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.config import load_config, parse_part
from kvbench.errors import ConfigError
from kvbench.replays.curve import CurvePass
from kvbench.replays.distances import FIGURES
from kvbench.replays.parts import parse_capacity
from kvbench.replays.plan import make_plan
from kvbench.results.curverates import RateTable
from kvbench.results.rates import RATES
from kvbench.results.result import request_counts
from kvbench.results.run import open_configured
from kvbench.trace.schema import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbench.plugins import Registry
    from kvbench.replays.plan import Plan
    from kvbench.sweeps.plan import PlannedCell
    from kvbench.trace.reader import Trace

_HIT_BLOCKS = list(FIGURES).index("hit_blocks")

FEWEST = 2
"""Cells that are worth a curve: one replay is as fast, and tells more."""

PLAIN: Mapping[str, Any] = {
    "workers": 1,
    "order": "tail-first",
    "belady": "off",
    "seen": "exact",
    "recompute": "none",
    "store_output": False,
}
"""Settings that a curve knows one value of."""

OF_CURVES = (
    *("block_tokens", "tail_rule", "id_kind", "id_scope", "block_bytes", "tokens", "tails", "shared_blocks"),
    *("seed", "on_error", "model", "models", "kv_dtype", "tp", "save_only_first_rank"),
)
"""Settings that it has, too: what a block is."""


def curve_groups(cells: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """The cells that curves answer, those of one curve together."""
    groups: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        if _is_plain_lru(cell.settings):
            shared = {name: value for name, value in cell.settings.items() if name in OF_CURVES}
            groups.setdefault(canonical_json(shared), []).append(cell)
    return [group for group in groups.values() if len({str(cell.settings["capacity"]) for cell in group}) >= FEWEST]


def curve_summaries(trace: str, cells: Sequence[PlannedCell], registry: Registry) -> list[dict[str, Any] | None]:
    """A summary for each of ``cells`` (one group), as their replays would have it, with None for what a curve does
    not tell; None for a cell whose capacity holds no block. Raises a KvbenchError for what no cell of it can be."""
    shared = {name: value for name, value in cells[0].settings.items() if name in OF_CURVES}
    config = load_config(None, {"trace": trace, **shared})
    opened = open_configured(config)
    plan = make_plan(config, registry, opened)
    found = CurvePass(plan, opened)
    for _ in found.run():
        pass
    table = RateTable(found)
    changes = found.changes()
    last = int(changes[-1]) if len(changes) else 1
    blocks = [_blocks(cell.settings["capacity"], plan, opened, found.distinct) for cell in cells]
    capacities = np.unique(np.array([*(each for each in blocks if each is not None), last], dtype=np.int64))
    hits = dict(
        zip(capacities.tolist(), table.figures(capacities)[:, _HIT_BLOCKS].astype(np.int64).tolist(), strict=True)
    )
    rates = dict(zip(capacities.tolist(), table.rates(capacities), strict=True))
    return [
        None
        if each is None
        else _summary(found, opened, plan, each, (hits[each], hits[last]), (rates[each], rates[last]))
        for each in blocks
    ]


def _is_plain_lru(settings: Mapping[str, Any]) -> bool:
    if any(name not in (*PLAIN, *OF_CURVES, "capacity", "policy") for name in settings):
        return False
    if any(settings.get(name, value) != value for name, value in PLAIN.items()):
        return False
    if settings.get("belady") != "off" or settings.get("capacity", "infinite") == "infinite":
        return False
    try:
        return parse_part(settings.get("policy") or "lru", "policy") == ("lru", {})
    except ConfigError:
        return False


def _blocks(capacity: Any, plan: Plan, trace: Trace, distinct: int) -> int | None:
    """The blocks of a capacity; None for one that a replay refuses, and says why."""
    try:
        blocks, share = parse_capacity(capacity, plan.block_bytes, block_tokens=trace.facts.block_tokens)
    except ConfigError:
        return None
    return (math.floor(distinct * share) if share is not None else blocks) or None


def _summary(
    found: CurvePass,
    trace: Trace,
    plan: Plan,
    capacity_blocks: int,
    hits: tuple[int, int],
    rates: tuple[dict[str, float | None], dict[str, float | None]],
) -> dict[str, Any]:
    """``hits`` and ``rates`` are those of the capacity, and of an infinite one."""
    asked, size = found.asked, plan.block_bytes
    summary: dict[str, Any] = {
        "requests": request_counts(asked.requests, trace),
        "tokens": {"input": asked.input_tokens, "output": None},
        "rates": rates[0],
        "belady_rates": dict.fromkeys(RATES),
        "infinite_rates": rates[1],
        "blocks": {
            "asked": asked.blocks,
            "full": asked.full_blocks,
            "hit": hits[0],
            "belady_hit": None,
            "infinite_hit": hits[1],
            "distinct": found.distinct,
        },
        "workers": {"count": 1},
        "capacity_blocks": capacity_blocks,
    }
    if size is not None:
        summary["bytes"] = {"block": size, "capacity": capacity_blocks * size, "hit": hits[0] * size}
    return summary
