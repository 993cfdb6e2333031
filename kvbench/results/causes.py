"""Why a tier did not pay: which of three causes explains most (user report E14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbench.results.totals import Totals

LITTLE_REUSE = 0.1
"""A trace of whose blocks less than this share could ever hit has no reuse to speak of."""

CAUSES = {
    "no reuse": "few blocks of the trace are ever asked for again",
    "served above": "faster tiers serve the reuse there is",
    "cycling": "blocks are evicted before they are asked for again: the working set does not fit",
}


def explain_tiers(tiers: list[dict[str, Any]], totals: Totals, *, has_seen: bool) -> None:
    """Add ``cause`` to the record of each tier that delivered nothing although blocks passed it by: the
    largest of the three shares of the blocks asked for. None where the tier hit, or nothing is known."""
    counts = totals.counts
    asked, reuse = counts["cacheable_blocks"], counts["infinite_hit_blocks"]
    above = 0
    for tier in tiers:
        tier["cause"] = None
        if has_seen and asked and not tier["hit_blocks"]:
            if reuse < LITTLE_REUSE * asked:
                tier["cause"] = "no reuse"
            else:
                tier["cause"] = "served above" if 2 * above >= reuse else "cycling"
        above += tier["hit_blocks"]
