"""What a replay found: the object that the library returns, the CLI prints and the files carry."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from kvbench.plugins import own_version
from kvbench.replays.tiers import TieredCore
from kvbench.replays.timedengine import TimedEngine
from kvbench.results.causes import explain_tiers
from kvbench.results.evenness import evenness
from kvbench.results.hitrates import hit_rates
from kvbench.results.requests import FOUND_REASONS, MISS_REASONS, TIER_REASONS, TIMED_REASONS
from kvbench.results.routing import routing_record
from kvbench.results.tiers import tier_records
from kvbench.specs import ComputeModelSpec, HashAlgorithmSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from kvbench.plugins import Registry
    from kvbench.replays.plan import Plan
    from kvbench.replays.timedengine import AnyEngine
    from kvbench.replays.timedfacts import RunFacts
    from kvbench.results.timed import TimedTotals
    from kvbench.results.totals import Totals
    from kvbench.trace.reader import Trace

RESULT_VERSION = 1


@dataclass(slots=True)
class ReplayResult:
    """The outcome of one replay.

    ``manifest``  schema version, kvbench and plugin versions, effective configuration, trace facts, digest and rows
                  (kept and skipped), seed, cold or warm caches. Equal for equal runs.
    ``summary``   the figures. Equal for equal runs.
    ``requests``  the ``requests`` table, where it was asked for.
    ``wall_clock``  how long it took; differs from run to run and is in no file.
    """

    manifest: dict[str, Any]
    summary: dict[str, Any]
    requests: pa.Table | None = None
    wall_clock: dict[str, float] = field(default_factory=dict)

    @property
    def rates(self) -> dict[str, float | None]:
        """Every named rate of this run (see :data:`kvbench.results.rates.RATES`)."""
        rates: dict[str, float | None] = self.summary["rates"]
        return rates

    def _repr_html_(self) -> str:
        from kvbench.results.notebook import replay_html

        return replay_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Manifest, summary and wall clock as plain values."""
        return {**self.manifest, "summary": self.summary, "wall_clock": self.wall_clock}


def make_result(
    plan: Plan,
    trace: Trace,
    engine: AnyEngine,
    totals: Totals,
    registry: Registry,
    timed: tuple[TimedTotals, RunFacts] | None = None,
) -> ReplayResult:
    """The result of a finished replay; ``timed`` has what a timed one adds."""
    summary = _summary(plan, trace, engine, totals)
    if timed is not None:
        found, facts = timed
        summary["requests"] = _all_requests(trace, found, totals, _gpu_blocks(plan, engine))
        summary["timed"] = found.record(facts)
    return ReplayResult(_manifest(plan, trace, engine, registry), summary)


def _gpu_blocks(plan: Plan, engine: AnyEngine) -> int | None:
    """Room of a worker's fastest tier; None without bound."""
    chunks = engine.core.capacities[0] if isinstance(engine.core, TieredCore) and plan.tiers else None
    return None if chunks is None or plan.tiers is None else chunks * plan.tiers[0].config.chunk


def _all_requests(trace: Trace, timed: TimedTotals, totals: Totals, gpu_blocks: int | None) -> dict[str, Any]:
    """Requests of the whole run by what became of them; ``counted`` are those that hit rates are of."""
    statuses = timed.statuses
    left_out = trace.rejected.count
    return {
        "arrived": sum(statuses.values()) + left_out,
        "done": statuses["done"],
        "rejected": statuses["rejected"] + left_out,
        "rejected_examples": [*trace.rejected.examples, *timed.rejected_examples(gpu_blocks)],
        "unfinished": statuses["unfinished"],
        "counted": totals.requests,
    }


def wall_clock(result: ReplayResult, replay_s: float) -> dict[str, float]:
    """Speed of a replay that took ``replay_s`` seconds, reading and writing included."""
    asked = (result.summary["blocks"] or {"asked": 0})["asked"]
    return wall_clock_of(result.summary["requests"]["done"], asked, replay_s)


def wall_clock_of(requests: int, blocks: int, replay_s: float) -> dict[str, float]:
    """Seconds, and requests and blocks a second."""
    seconds = max(replay_s, 1e-9)
    return {"replay_s": replay_s, "requests_per_s": requests / seconds, "blocks_per_s": blocks / seconds}


def plugin_versions(plans: Sequence[Plan], registry: Registry) -> dict[str, Any]:
    """Versions of kvbench and of the distributions whose parts are used."""
    used = {registry.distribution(part.spec) for plan in plans for part in plan.parts}
    others = {each.name: each.version for each in sorted(used, key=str) if each.name != "kvbench"}
    return {"kvbench": own_version(), "plugins": others}


def trace_facts(trace: Trace) -> dict[str, Any]:
    """The facts, the digest and the rows of a trace that has been read."""
    return {
        **dataclasses.asdict(trace.facts),
        "digest": trace.digest,
        "ids": trace.ids,
        "rows": trace.kept_rows,
        "skipped_rows": trace.rejected.count,
    }


def request_counts(done: int, trace: Trace) -> dict[str, Any]:
    """What became of the requests of a trace that has been read, of which ``done`` broke no rule."""
    rejected = trace.rejected
    return {
        "arrived": done + rejected.count,
        "done": done,
        "rejected": rejected.count,
        "rejected_examples": list(rejected.examples),
    }


def _manifest(plan: Plan, trace: Trace, engine: AnyEngine, registry: Registry) -> dict[str, Any]:
    return {
        "version": RESULT_VERSION,
        **plugin_versions([plan], registry),
        **_cautions(plan, engine),
        "config": plan.to_dict(engine.capacity_blocks),
        "cache": _cache(plan),
        "files": _file_digests(plan),
        "trace": trace_facts(trace),
    }


def _cache(plan: Plan) -> str:
    """What the requests that count found: ``cold``, empty caches at their start; ``warm``, what earlier ones left."""
    window = plan.config.window
    left_out = window is not None and (window.warmup is not None or window.start is not None)
    return "warm" if left_out else "cold"


def _cautions(plan: Plan, engine: AnyEngine) -> dict[str, list[str]]:
    """What to know before this result is relied on; ``notes`` are what was assumed of the trace."""
    specs = [part.spec for part in plan.parts]
    found = [
        f"{spec.name}: {spec.caution}"
        for spec in specs
        if isinstance(spec, (HashAlgorithmSpec, ComputeModelSpec)) and spec.caution
    ]
    if isinstance(engine, TimedEngine):
        found += engine.arrivals.cautions()
    notes = list(plan.serving.notes) if plan.serving is not None else []
    return {name: texts for name, texts in (("cautions", found), ("notes", notes)) if texts}


def _file_digests(plan: Plan) -> dict[str, str]:
    """Digests of the files that the configuration names, whose contents decide the result, too."""
    named = {name: getattr(plan.config, name) for name in ("faults", "devices", "models")}
    if plan.config.model is not None and Path(plan.config.model).exists():
        named["model"] = plan.config.model
    return {
        name: "blake3:" + blake3(file.read_bytes()).hexdigest()
        for name, path in named.items()
        if path is not None and (file := _file_of(Path(path))).is_file()
    }


def _file_of(path: Path) -> Path:
    """A model may be named by its folder."""
    return path / "config.json" if path.is_dir() else path


def _summary(plan: Plan, trace: Trace, engine: AnyEngine, totals: Totals) -> dict[str, Any]:
    has_ids = trace.ids is not None
    has_seen = has_ids and plan.config.seen == "exact"
    counts = totals.counts
    summary: dict[str, Any] = {
        "requests": request_counts(totals.requests, trace),
        "tokens": {"input": totals.input_tokens, "output": totals.output_tokens},
        "rates": totals.rates(totals.hits, known=has_ids),
        "belady_rates": totals.rates(totals.belady, known=engine.has_bound),
        "infinite_rates": totals.rates(totals.infinite, known=has_seen),
        "blocks": _blocks(totals, engine) if has_ids else None,
        "misses": misses(totals, has_ids=has_ids, has_seen=has_seen),
        "workers": _workers(totals, engine),
        "capacity_blocks": engine.capacity_blocks,
    }
    if engine.core.dispatcher is not None and has_ids:
        summary["routing"] = routing_record(engine.core.dispatcher, totals.routing)
    if plan.tiers is not None and has_ids:
        summary["tiers"] = tier_records(plan, trace, engine, totals)
        explain_tiers(summary["tiers"], totals, has_seen=has_seen)
        if len(plan.tiers) > 1:
            summary["serving"] = _serving(plan, totals)
    if plan.block_bytes is not None and has_ids:
        summary["bytes"] = {
            "block": plan.block_bytes,
            "capacity": None if engine.capacity_blocks is None else engine.capacity_blocks * plan.block_bytes,
            "hit": counts["hit_blocks"] * plan.block_bytes,
            "stored": counts["stored_blocks"] * plan.block_bytes,
            "evicted": counts["evicted_blocks"] * plan.block_bytes,
        }
    return summary


def _serving(plan: Plan, totals: Totals) -> dict[str, Any]:
    """What serving systems would print of it, and what fetches were promised and did not get."""
    sums = totals.serving
    return {
        "hit_rates": hit_rates(sums),
        "token_sums": msgspec.to_builtins(sums),
        "gap_tokens": sums.asked - sums.delivered,
        "wasted_bytes": None if plan.block_bytes is None else totals.counts["lost_blocks"] * plan.block_bytes,
    }


def _blocks(totals: Totals, engine: AnyEngine) -> dict[str, int | None]:
    counts = totals.counts
    return {
        "asked": counts["blocks"],
        "full": totals.full_blocks,
        "hit": counts["hit_blocks"],
        "belady_hit": totals.belady.blocks if engine.has_bound else None,
        "infinite_hit": counts["infinite_hit_blocks"] if engine.core.distinct_blocks is not None else None,
        "distinct": engine.core.distinct_blocks,
        "stored": counts["stored_blocks"],
        "evicted": counts["evicted_blocks"],
        "truncated": counts["truncated_blocks"],
        "duplicate": counts["miss_gap_blocks"],
        "resident_at_end": sum(engine.core.resident_blocks),
    }


def misses(totals: Totals, *, has_ids: bool, has_seen: bool) -> dict[str, int | None]:
    """Missed blocks by reason; None where it is not known."""
    found: dict[str, int | None] = {}
    for column in MISS_REASONS:
        reason = column.removeprefix("miss_").removesuffix("_blocks")
        if reason == "partial":
            found[reason] = totals.partial_blocks if has_ids else None
        elif column in FOUND_REASONS or reason == "other_worker":
            found[reason] = totals.counts.get(column, 0) if has_ids else None
        elif column in (*TIER_REASONS, *TIMED_REASONS):
            found[reason] = totals.counts.get(column, 0) if has_seen else None
        else:
            found[reason] = totals.counts[column] if has_seen else None
    return found


def _workers(totals: Totals, engine: AnyEngine) -> dict[str, Any]:
    requests = totals.worker_requests.tolist()
    tokens = totals.worker_input_tokens.tolist()
    hits = totals.worker_hit_tokens.tolist()
    several = totals.workers > 1
    return {
        "count": totals.workers,
        **evenness(totals),
        "best_blocks": totals.counts["best_blocks"] if several else None,
        "predicted_blocks": totals.counts["predicted_blocks"] if several else None,
        "each": [
            {"worker": i, "requests": r, "input_tokens": t, "hit_tokens": h, "resident_blocks": held}
            | ({"predicted_tokens": int(totals.worker_predicted_tokens[i])} if several else {})
            for i, (r, t, h, held) in enumerate(zip(requests, tokens, hits, engine.core.resident_blocks, strict=True))
        ],
    }
