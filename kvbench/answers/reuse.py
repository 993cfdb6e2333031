"""Is there any reuse to win? What a cache of everything would hit, whose blocks these are, and how soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.answers.answer import Answer, manifest_of
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars, lines
from kvbench.results.bins import bin_end
from kvbench.results.blocksizes import TOKEN_SIZES
from kvbench.results.causes import LITTLE_REUSE
from kvbench.results.headline import percent
from kvbench.results.inspect import inspect_trace
from kvbench.results.rates import RATES
from kvbench.results.requests import MISS_REASONS
from kvbench.results.run import open_configured
from kvbench.results.sources import SOURCES
from kvbench.units import NS_PER_S, format_duration_ns

if TYPE_CHECKING:
    from kvbench.answers.answer import Asked
    from kvbench.report.figure import Figure
    from kvbench.trace.reader import Trace

SHARES = (0.5, 0.9)

IN_WORDS = {
    "opening": "in an opening that many prompts share",
    "same_session": "last used by the same session",
    "other_session": "last used by another session",
    "other_tenant": "last used by another tenant",
    "no_session": "used in requests of no known session",
}
"""What the sentence on sources calls each."""


def answer(asked: Asked) -> Answer:
    """The bound, the sources, the histograms, what is used once, and why the rest misses."""
    trace = open_configured(asked.config)
    trace.need_ids()
    report = inspect_trace(
        trace, asked.registry, asked.config, block_sizes=_block_sizes(trace), progress=asked.row_progress
    )
    tables = {
        "bound": _bound(report),
        "sources": _sources(report),
        "reuse-distance": _histogram(report["reuse_distance_blocks"], "blocks"),
        "reuse-time": _histogram(report["reuse_time_ns"], "ns"),
        "misses": _misses(report),
    }
    return Answer(
        question="reuse",
        advice=_advice(report),
        tables=tables,
        manifest=manifest_of(make_plan(asked.config, asked.registry, trace), trace, asked.registry),
        figures=_figures(tables),
    )


def _block_sizes(trace: Trace) -> list[int] | None:
    """The usual ones, and the trace's own if it is a multiple of the smallest; None for those that its ids tell."""
    own = trace.facts.block_tokens
    if trace.ids != "token_ids" or own is None or own % TOKEN_SIZES[0]:
        return None
    return sorted({*TOKEN_SIZES, own})


def _bound(report: dict[str, Any]) -> pa.Table:
    rates = report["infinite_rates"]
    return pa.table(
        {
            "rate": list(RATES),
            "infinite_rate": pa.array([rates[name] for name in RATES], pa.float64()),
            "definition": list(RATES.values()),
        }
    )


def _sources(report: dict[str, Any]) -> pa.Table:
    rows = [row | {"meaning": SOURCES[row["source"]]} for row in report["hit_sources"] if row["hit_blocks"]]
    schema = pa.schema(
        [
            ("source", pa.string()),
            ("hit_blocks", pa.int64()),
            ("hit_tokens", pa.int64()),
            ("hit_tokens_share", pa.float64()),
            ("meaning", pa.string()),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


def _histogram(bins: list[dict[str, int]], unit: str) -> pa.Table:
    """Reused blocks by powers of two, and the share of them up to each; without those that have none."""
    total, so_far, shares = sum(each["blocks"] for each in bins), 0, []
    bins = [each for each in bins if each["blocks"]]
    for each in bins:
        so_far += each["blocks"]
        shares.append(so_far / total)
    return pa.table(
        {
            f"from_{unit}": pa.array([each["from"] for each in bins], pa.int64()),
            f"below_{unit}": pa.array([each["below"] for each in bins], pa.int64()),
            "reused_blocks": pa.array([each["blocks"] for each in bins], pa.int64()),
            "cumulated_share": pa.array(shares, pa.float64()),
        }
    )


def _misses(report: dict[str, Any]) -> pa.Table:
    asked = report["blocks"]["asked"]
    rows = []
    for column, meaning in MISS_REASONS.items():
        reason = column.removeprefix("miss_").removesuffix("_blocks")
        missed = report["misses"][reason]
        if missed:
            rows.append((reason, missed, missed / asked, meaning))
    names = ("reason", "missed_blocks", "asked_blocks_share", "meaning")
    types = (pa.string(), pa.int64(), pa.float64(), pa.string())
    return pa.table(
        {
            name: pa.array([row[at] for row in rows], kind)
            for at, (name, kind) in enumerate(zip(names, types, strict=True))
        }
    )


def _advice(report: dict[str, Any]) -> list[str]:
    rates, blocks = report["infinite_rates"], report["blocks"]
    token = rates["token"] if rates["token"] is not None else rates["block"]
    of = "input tokens" if rates["token"] is not None else "blocks"
    if not token:
        advice = [f"No: a cache that holds everything hits none of the {of}."]
    elif token < LITTLE_REUSE:
        advice = [
            f"Little: a cache that holds everything hits {percent(token)} of the {of}; no larger one does better."
        ]
    else:
        advice = [f"Yes: a cache that holds everything hits {percent(token)} of the {of}; no cache does better."]
    advice[0] += f" By request: {percent(rates['request_any'])} of the requests hit something."
    advice += _short(report)
    found = [row for row in report["hit_sources"] if row["hit_blocks"]]
    if found:
        shares = [
            (percent(row["hit_tokens_share"]), IN_WORDS[row["source"]])
            for row in sorted(found, key=lambda row: -row["hit_tokens"])
        ]
        named = ", ".join(f"{share} {'' if at else 'were '}{source}" for at, (share, source) in enumerate(shares))
        advice.append(f"Of the hit tokens {named}.")
    if report["reuse_distance_blocks"]:
        near, far = (bin_end(report["reuse_distance_blocks"], share) for share in SHARES)
        soon, late = (bin_end(report["reuse_time_ns"], share) for share in SHARES)
        advice.append(
            f"Half of the reuse comes below {near:,} other blocks and {format_duration_ns(soon)} later, "
            f"90 % below {far:,} blocks and {format_duration_ns(late)}: kvbench answer dram sizes a cache for it."
        )
    advice.append(
        f"{percent(blocks['used_once_share'])} of {blocks['distinct']:,} distinct blocks are used once: they take room "
        "and are never hit."
    )
    return advice


def _short(report: dict[str, Any]) -> list[str]:
    """Of requests that share less than one block with those before (user report C05)."""
    block_tokens = report["trace"]["block_tokens"]
    sizes = {row["block_tokens"]: row for row in report["block_sizes"] or ()}
    if block_tokens not in sizes or not sizes[block_tokens]["shorter_than_block_requests"]:
        return []
    short = sizes[block_tokens]["shorter_than_block_requests"]
    best = max(sizes.values(), key=lambda row: row["hit_tokens"])
    return [
        f"{short:,} requests share a prefix shorter than a block of {block_tokens:,} tokens, which hits nothing; "
        f"blocks of {best['block_tokens']:,} hit {percent(best['token_rate'])}: see kvbench answer block-size."
    ]


def _figures(tables: dict[str, pa.Table]) -> list[Figure]:
    figures = []
    sources = tables["sources"].select(["source", "hit_tokens_share", "hit_tokens"]).to_pylist()
    if sources:
        figures.append(
            bars(
                "sources",
                "Hit tokens by source, infinite cache",
                sources,
                x="source",
                y="hit_tokens_share",
                x_title="source",
                y_title="share of hit tokens",
                percent=True,
            )
        )
    distance = tables["reuse-distance"].to_pylist()
    if distance:
        figures.append(
            lines(
                "reuse-distance",
                "Reuse by distance",
                distance,
                x="below_blocks",
                y="cumulated_share",
                x_title="other blocks before a block is used again, below",
                y_title="share of reused blocks",
                x_log=True,
                percent=True,
            )
        )
        figures.append(
            lines(
                "reuse-time",
                "Reuse by time",
                [row | {"below_s": row["below_ns"] / NS_PER_S} for row in tables["reuse-time"].to_pylist()],
                x="below_s",
                y="cumulated_share",
                x_title="seconds before a block is used again, below",
                y_title="share of reused blocks",
                x_log=True,
                percent=True,
            )
        )
    return figures
