"""The figures of one run that its summary has the numbers for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.figure import Figure, bars
from kvbench.results.requests import MISS_REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_WORKERS = 64
"""Of more workers those with most prompt tokens are drawn."""

OPT = "OPT (Belady)"
BOUNDS = {"rates": "this run", "belady_rates": OPT, "infinite_rates": "infinite cache"}


def rate_name(summary: Mapping[str, Any]) -> str:
    """The rate that is shown: of tokens, or of blocks where tokens of a block are not known."""
    return "token" if (summary.get("rates") or {}).get("token") is not None else "block"


def run_figures(summary: Mapping[str, Any], prefix: str = "") -> list[Figure]:
    """All there are; ``prefix`` stands before their names."""
    found = [
        _bounds(summary, prefix),
        _misses(summary, prefix),
        _tiers(summary, prefix),
        _workers(summary, prefix),
        _links(summary, prefix),
    ]
    return [figure for figure in found if figure is not None and figure.rows]


def _bounds(summary: Mapping[str, Any], prefix: str) -> Figure | None:
    rate = rate_name(summary)
    rows = [
        {"cache": title, f"{rate}_rate": summary[key][rate]}
        for key, title in BOUNDS.items()
        if (summary.get(key) or {}).get(rate) is not None
    ]
    return bars(
        f"{prefix}bounds",
        "Hit rate and its bounds",
        rows,
        x="cache",
        y=f"{rate}_rate",
        x_title="",
        y_title=f"{rate} hit rate",
        percent=True,
        horizontal=True,
        note="OPT evicts what is needed last, knowing the future." if any(row["cache"] == OPT for row in rows) else "",
    )


def _misses(summary: Mapping[str, Any], prefix: str) -> Figure | None:
    misses = {reason: blocks for reason, blocks in (summary.get("misses") or {}).items() if blocks}
    meaning = {name.removeprefix("miss_").removesuffix("_blocks"): text for name, text in MISS_REASONS.items()}
    rows = [
        {"reason": reason.replace("_", " "), "miss_blocks": blocks, "meaning": meaning.get(reason, "")}
        for reason, blocks in sorted(misses.items(), key=lambda item: -item[1])
    ]
    return bars(
        f"{prefix}misses",
        "Misses by reason",
        rows,
        x="reason",
        y="miss_blocks",
        x_title="",
        y_title="blocks missed",
        horizontal=True,
    )


def _tiers(summary: Mapping[str, Any], prefix: str) -> Figure | None:
    tiers = summary.get("tiers") or []
    blocks = summary.get("blocks") or {}
    rows = [{"tier": tier["tier"], "hit_blocks": tier["hit_blocks"]} for tier in tiers]
    if not rows or not blocks.get("asked"):
        return None
    rows.append({"tier": "missed", "hit_blocks": blocks["asked"] - blocks["hit"]})
    return bars(
        f"{prefix}tiers",
        "Blocks by where they were found",
        [{**row, "share": row["hit_blocks"] / blocks["asked"]} for row in rows],
        x="tier",
        y="share",
        x_title="",
        y_title="share of blocks asked for",
        percent=True,
        horizontal=True,
        note="A block counts for the fastest tier that has it.",
    )


def _workers(summary: Mapping[str, Any], prefix: str) -> Figure | None:
    each = (summary.get("workers") or {}).get("each") or []
    if len(each) < 2:
        return None
    shown = sorted(each, key=lambda worker: -worker["input_tokens"])[:MAX_WORKERS]
    rows = [
        {"worker": worker["worker"], "requests": worker["requests"], "part": part, "tokens": tokens}
        for worker in sorted(shown, key=lambda worker: int(worker["worker"]))
        for part, tokens in (
            ("hit", worker["hit_tokens"]),
            ("computed", worker["input_tokens"] - worker["hit_tokens"]),
        )
    ]
    left_out = len(each) - len(shown)
    return bars(
        f"{prefix}workers",
        "Prompt tokens by worker",
        rows,
        x="worker",
        y="tokens",
        x_title="worker",
        y_title="prompt tokens",
        series="part",
        note=f"The {len(shown)} workers with most tokens; {left_out:,} others are left out." if left_out else "",
    )


def _links(summary: Mapping[str, Any], prefix: str) -> Figure | None:
    links = (summary.get("timed") or {}).get("links") or []
    shown = sorted(links, key=lambda link: -(link["utilisation"] or 0))[:MAX_WORKERS]
    rows = [
        {
            "link": f"{link['name']} {link['store']}",
            "busy_share": link["utilisation"],
            "moved_bytes": link["moved_bytes"],
            "operations": link["operations"],
        }
        for link in shown
    ]
    left_out = len(links) - len(shown)
    return bars(
        f"{prefix}links",
        "Link use",
        rows,
        x="link",
        y="busy_share",
        x_title="",
        y_title="share of time with a transfer",
        percent=True,
        horizontal=True,
        note=f"The {len(shown)} busiest links; {left_out:,} others are left out." if left_out else "",
    )
