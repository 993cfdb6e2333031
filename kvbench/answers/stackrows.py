"""What a stack of tiers costs: prompts computed and read, each alone, or what the clock says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.results.rates import ratio
from kvbench.serving.compute import ComputeContext
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.variants import Ran
    from kvbench.replays.plan import Plan
    from kvbench.serving.compute import ComputeModel

NOTICEABLE = 0.01
"""A gain in time of less than this share is none."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What prompts cost by themselves: ``prefill_tokens_per_s`` of a worker, and ``read_latency_ns`` of each tier that
    has a device."""

    prefill_tokens_per_s: float
    read_latency_ns: dict[str, int]

    @classmethod
    def of(cls, plan: Plan) -> Costs:
        """Of a plan with tiers. Raises ConfigError where nothing says how fast prompts are computed."""
        latencies = {tier.name: tier.device.read_latency_ns for tier in plan.tiers or () if tier.device is not None}
        return cls(_prefill_tokens_per_s(plan), latencies)

    def compute_ns(self, summary: dict[str, Any]) -> float:
        """Computing what missed."""
        tokens = summary["tokens"]["input"] * (1 - summary["rates"]["token"])
        return float(tokens / self.prefill_tokens_per_s * NS_PER_S)

    def read_ns(self, summary: dict[str, Any]) -> int:
        """Reading what hit below the first tier, each read by itself."""
        times: list[int] = [
            tier["read_busy_ns"] + tier["lookup_ns"] + tier["read_operations"] * self.read_latency_ns[tier["tier"]]
            for tier in summary["tiers"][1:]
            if tier["tier"] in self.read_latency_ns
        ]
        return sum(times)


def _prefill_tokens_per_s(plan: Plan) -> float:
    """What the run says, or what its compute model makes of a full step that has no context."""
    config = plan.config
    if config.prefill_tokens_per_s is not None:
        return config.prefill_tokens_per_s
    if plan.serving is None:
        raise ConfigError(
            "whether reading pays depends on how fast prompts are computed: give --prefill-tokens-per-s, or --compute"
        )
    models = None if config.models is None else Path(config.models)
    context = ComputeContext(model=config.model, tp=config.tp, kv_dtype=config.kv_dtype, models_file=models)
    batch = plan.serving.worker.batch_tokens
    compute: ComputeModel = plan.serving.compute.make(context)
    return batch * NS_PER_S / compute.prefill_time_ns(batch)


def stack_rows(ran: Sequence[Ran], costs: Costs) -> list[dict[str, Any]]:
    """A row a stack: rates, times, and what is saved beside the first one, the stack without a tier on trial.

    ``saved_share`` of the mean TTFT, or of ``prompts_ns``, what all prompts take alone, in order replay.
    """
    rows: list[dict[str, Any]] = []
    for each in ran:
        summary = each.summary
        row = {**each.label, "token_rate": summary["rates"]["token"]}
        row["gained_token_rate"] = row["token_rate"] - (rows[0] if rows else row)["token_rate"]
        if "timed" in summary:
            row |= _timed(summary, each.label["trial"], costs)
            time = "ttft_mean_ns"
        else:
            compute, read = costs.compute_ns(summary), costs.read_ns(summary)
            row |= {"compute_ns": compute, "read_ns": read, "prompts_ns": compute + read}
            time = "prompts_ns"
        before = (rows[0] if rows else row)[time]
        row["saved_share"] = 1 - row[time] / before if before else 0.0
        row["pays"] = row["saved_share"] >= NOTICEABLE
        rows.append(row)
    return rows


def _timed(summary: dict[str, Any], trial: str | None, costs: Costs) -> dict[str, Any]:
    timed = summary["timed"]
    reads = {tier["tier"]: tier["read_operations"] for tier in summary["tiers"][1:]}
    fetched = timed["fetch_ns"]["mean"] * timed["fetch_ns"]["n"] if timed["fetch_ns"]["n"] else 0
    whole = timed["requests"]["not_counted"] == 0
    names = [] if trial is None else trial.split(" + ")
    busy = [
        link["utilisation"]
        for link in timed["links"]
        if link["name"] in {f"{name} read" for name in names} and link["utilisation"] is not None
    ]
    return {
        "ttft_mean_ns": timed["ttft_ns"]["mean"],
        "ttft_p99_ns": timed["ttft_ns"]["p99"],
        **{f"{part}_mean_ns": timed[f"{part}_ns"]["mean"] for part in ("queue", "fetch", "prefill")},
        "device_wait_ns": ratio(max(fetched - costs.read_ns(summary), 0), sum(reads.values())) if whole else None,
        "device_reading_share": max(busy, default=None),
        "slo_share": None if timed["goodput"] is None else timed["goodput"]["share_of_arrived"],
        "verdict": timed["verdict"]["state"],
    }
