"""What each tier of a replay did, and how soon blocks are used again: tables of recipes about tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.config import RunConfig
from kvbench.results.curve import run_curve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvbench.answers.answer import Asked
    from kvbench.answers.variants import Ran

SHOWN = (
    *("capacity_blocks", "all_stores_bytes", "hit_blocks", "token_rate", "read_bytes", "written_bytes"),
    *("written_bytes_per_day", "drive_writes_per_day", "rated_drive_writes_per_day"),
    *("break_even_tokens", "read_busy_ns", "write_busy_ns"),
)
"""Figures of a tier's record."""

OF_BLOCKS = (
    "block_tokens",
    "tail_rule",
    "id_kind",
    "id_scope",
    "tokens",
    "tails",
    "shared_blocks",
    "on_error",
    "trace",
)
"""Settings that say how prompts become blocks."""


def tier_rows(ran: Sequence[Ran]) -> list[dict[str, Any]]:
    """A row for each tier of each replay: its hits, bytes, wear, how old its blocks were when they were evicted, and
    whether it is ``write-only`` or ``idle``, and why."""
    return [
        {
            **each.label,
            "tier": tier["tier"],
            **{name: tier[name] for name in SHOWN},
            "evicted_age_mean_ns": _ns(tier["retention"]["mean_s"]),
            "flags": " ".join(tier["flags"]) or None,
            "cause": tier["cause"],
        }
        for each in ran
        for tier in each.summary["tiers"]
    ]


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def link_utilisation(summary: dict[str, Any], tier: str, direction: str) -> float | None:
    """How busy the device of ``tier`` was: the busiest of its stores, of a timed replay."""
    found = [link["utilisation"] for link in summary["timed"]["links"] if link["name"] == f"{tier} {direction}"]
    return max((each for each in found if each is not None), default=None)


def reuse_rows(asked: Asked) -> list[dict[str, Any]]:
    """How long after its last use a block is used again, by powers of two."""
    settings = {name: getattr(asked.config, name) for name in OF_BLOCKS}
    bins = run_curve(RunConfig(**settings), asked.registry, capacities="1").summary["reuse_time_ns"]
    return list(_cumulated(bins))


def _cumulated(bins: Sequence[dict[str, int]]) -> Iterator[dict[str, Any]]:
    total, so_far = sum(each["blocks"] for each in bins), 0
    for each in (each for each in bins if each["blocks"]):
        so_far += each["blocks"]
        yield {
            "from_ns": each["from"],
            "below_ns": each["below"],
            "reused_blocks": each["blocks"],
            "cumulated_share": so_far / total,
        }


def later_share(rows: Sequence[dict[str, Any]], age_ns: float) -> float:
    """At least this share of the uses comes later than ``age_ns`` after the last one: what lies in whole bins."""
    total = sum(row["reused_blocks"] for row in rows)
    return sum(row["reused_blocks"] for row in rows if row["from_ns"] >= age_ns) / total if total else 0.0
