"""What ``kvbench events`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.cli.tables import Printer, simple_table
from kvbench.events.damage import damage_text

if TYPE_CHECKING:
    from kvbench.results.folding import Folded


def print_folded(folded: Folded) -> None:
    """What is resident after the events."""
    out = Printer()
    out.print(f"{folded.events:,} events of {folded.requests:,} requests")
    table = simple_table("tier", "store", "resident blocks")
    for place in folded.to_dict()["places"]:
        table.add_row(place["tier"], str(place["store"]), f"{place['blocks']:,}")
    out.print(table)
    if folded.diverging is not None:
        out.print(
            f"rule {folded.fold.rule}: {folded.fold.duplicates:,} blocks stored where they were, "
            f"{folded.fold.unheld:,} taken from where they were not"
        )
        out.print(f"naive and refcount differ in {folded.diverging:,} blocks")


def print_stats(stats: dict[str, Any]) -> None:
    """Lifetimes and reuse by tier."""
    out = Printer()
    out.print(f"{stats['events']:,} events of {stats['workers']:,} workers")
    if stats["heard"] is not None:
        heard = stats["heard"]
        out.print(
            f"{heard['messages']:,} messages heard, {heard['lost']:,} lost in {heard['gaps']:,} gaps, "
            f"{heard['late']:,} late, {heard['repeats']:,} repeated, {heard['restarts']:,} restarts"
        )
    if any(stats["damage"].values()):
        out.print(f"it is damaged: {damage_text(**stats['damage'])}")
    out.print()
    blocks = simple_table(
        "tier", "stored", "distinct", "again", "removed", "at end", "duplicates", "unheld", title="blocks"
    )
    times = simple_table("tier", "stay p50 s", "p90 s", "p99 s", "back after p50 s", "p90 s", "p99 s", title="times")
    for tier in stats["tiers"]:
        names = ("stored", "distinct", "stored_again", "removed", "resident_at_end", "duplicates", "unheld")
        blocks.add_row(tier["tier"], *(f"{tier[name]:,}" for name in names))
        measured = [*tier["lifetime_s"].values(), *tier["absence_s"].values()]
        times.add_row(tier["tier"], *("–" if value is None else f"{value:,.1f}" for value in measured))
    for table in (blocks, times):
        out.print(table)
        out.print()
    out.print("again: stored again after it was gone; back after: how long it was gone; percentiles interpolated")
