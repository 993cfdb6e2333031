"""The tables of a stack of tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.cli.tables import add_remarks, simple_table
from kvbench.results.causes import CAUSES
from kvbench.results.headline import number, percent
from kvbench.results.hitrates import HIT_RATES
from kvbench.units import format_bytes, format_count, format_duration_ns

if TYPE_CHECKING:
    from rich.table import Table


def serving_table(serving: dict[str, Any]) -> Table:
    """The hit rates as serving systems define them."""
    table = simple_table("as printed by", "rate", "formula")
    add_remarks(table)
    for rate in HIT_RATES:
        table.add_row(rate.name, percent(serving["hit_rates"][rate.name]), rate.formula, rate.source)
    return table


def tier_headline(settings: dict[str, Any]) -> str:
    """The stack in one line."""
    tiers = " → ".join(tier["name"] for tier in settings["tiers"]) or "no tier"
    return f"{tiers} ({settings['placement']}, walk {settings['walk']})"


def tier_tables(tiers: list[dict[str, Any]]) -> list[Table]:
    """What each tier is, what it delivered and moved, and what became of its blocks."""
    return [_sizes(tiers), _work(tiers), _fates(tiers)]


def _sizes(tiers: list[dict[str, Any]]) -> Table:
    table = simple_table("tier", "scope", "stores", "policy", "blocks each", "tokens each", "bytes each", "in all")
    for tier in tiers:
        each = tier["capacity_blocks"]
        policy = "–" if tier["policy"] is None else tier["policy"]["name"]
        tokens = "–" if tier["capacity_tokens"] is None else format_count(tier["capacity_tokens"])
        total = tier["all_stores_bytes"]
        table.add_row(
            tier["tier"],
            tier["scope"],
            f"{tier['stores']:,}",
            policy,
            "infinite" if each is None else f"{each:,}",
            tokens,
            _bytes(tier["capacity_bytes"]),
            _bytes(total) if total is not None else number(tier["all_stores_blocks"]),
        )
    return table


def _work(tiers: list[dict[str, Any]]) -> Table:
    sized = tiers[0]["read_bytes"] is not None
    table = simple_table("tier", "hit blocks", "token rate", "read", "written", "busy reading", "busy writing")
    add_remarks(table)
    for tier in tiers:
        read, written = (
            _bytes(tier[f"{name}_bytes"]) if sized else f"{tier[f'{name}_blocks']:,} blocks"
            for name in ("read", "written")
        )
        table.add_row(
            tier["tier"],
            f"{tier['hit_blocks']:,}",
            percent(tier["token_rate"]),
            read,
            written,
            _duration(tier["read_busy_ns"]),
            _duration(tier["write_busy_ns"]),
            _remarks(tier),
        )
    return table


def _remarks(tier: dict[str, Any]) -> str:
    remarks = list(tier["flags"])
    if tier["cause"] is not None:
        remarks.append(CAUSES[tier["cause"]])
    if tier["break_even_tokens"] is not None:
        remarks.append(f"loading beats recomputing from {max(tier['break_even_tokens'], 1):,.0f} tokens on")
    if tier["drive_writes_per_day"] is not None and tier["rated_drive_writes_per_day"] is not None:
        rated = tier["rated_drive_writes_per_day"]
        remarks.append(f"{tier['drive_writes_per_day']:.3g} drive writes a day, rated for {rated:g}")
    return "; ".join(remarks)


FATES = {
    "computed": "computed_blocks",
    "promoted": "promoted_blocks",
    "demoted into": "demoted_blocks",
    "evicted for room": "evicted_room_blocks",
    "at watermark": "evicted_watermark_blocks",
    "moved down": "moved_down_blocks",
    "moved up": "moved_up_blocks",
    "refused": None,
    "duplicate": "duplicate_blocks",
    "orphans": "orphan_blocks",
}
"""Column → key of the tier's record."""


def _fates(tiers: list[dict[str, Any]]) -> Table:
    table = simple_table("blocks", *FATES)
    for tier in tiers:
        cells = [
            sum(tier[f"refused_{reason}_blocks"] for reason in ("admission", "room", "fault", "frozen"))
            if key is None
            else tier[key]
            for key in FATES.values()
        ]
        table.add_row(tier["tier"], *(f"{cell:,}" for cell in cells))
    return table


def _bytes(count: int | None) -> str:
    return "–" if count is None else format_bytes(count)


def _duration(nanoseconds: int | None) -> str:
    return "–" if nanoseconds is None else format_duration_ns(nanoseconds)
