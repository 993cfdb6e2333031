"""Which block size? What larger blocks lose, and what they save: index entries, events, and small transfers."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.variants import Ran, Variant, given_settings, run_variants, table_of
from kvbench.answers.words import parse_share, points
from kvbench.errors import ConfigError, TraceError
from kvbench.replays.plan import make_plan
from kvbench.report.figure import lines
from kvbench.results.blocksizes import MULTIPLES, TOKEN_SIZES
from kvbench.results.headline import percent
from kvbench.results.inspect import inspect_trace
from kvbench.results.rates import ratio
from kvbench.results.run import open_configured
from kvbench.units import BYTE_UNITS, NS_PER_S, TOKEN_UNITS, format_bytes, parse_bytes, parse_tokens, split_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.answer import Asked
    from kvbench.report.figure import Figure
    from kvbench.trace.reader import Trace

SIZES_OF_KV = ("model", "models", "kv_dtype", "tp", "save_only_first_rank", "block_bytes")
"""Settings that say how large KV is, which changes no hit of a cache of so many tokens."""

CACHE = "cache"
"""The one tier of the replays."""


def answer(
    asked: Asked, *, block_sizes: Sequence[int] | None = None, capacity: str | None = None, worth: str = "1%"
) -> Answer:
    """Replay the trace with blocks of each size.

    ``block_sizes``  in tokens; by default the usual ones, or multiples of the trace's own.
    ``capacity``     of the cache in bytes or tokens, the same for each size; None: it holds everything.
    ``worth``        the share of all tokens that larger blocks may hit less than the smallest.
    """
    share = parse_share(worth, "--worth")
    trace = open_configured(asked.config)
    sizes = _sizes(trace, block_sizes)
    config = asked.config
    if trace.ids == "token_ids" and trace.facts.block_tokens is None:
        config = msgspec.structs.replace(config, block_tokens=sizes[0])
        trace = open_configured(config)
    plan = make_plan(config, asked.registry, trace)
    own = trace.facts.block_tokens or 1
    token_bytes = None if plan.block_bytes is None else Fraction(plan.block_bytes, own)
    tokens = None if capacity is None else _tokens(capacity, token_bytes)
    report = inspect_trace(trace, asked.registry, config, block_sizes=sizes, progress=asked.row_progress)
    base = given_settings(config)
    ran = run_variants(asked, [_variant(base, trace.ids == "token_ids", size, own, tokens) for size in sizes])
    bounds = report["block_sizes"]
    rows = [
        _row(one, bound, bounds[0], report["arrivals"]["span_ns"], token_bytes)
        for one, bound in zip(ran, bounds, strict=True)
    ]
    best = _best(rows, share)
    return Answer(
        question="block-size",
        advice=_advice(rows, best, own if trace.ids == "block_ids" else None, capacity),
        tables={"sizes": table_of(rows)},
        manifest=manifest_of(plan, trace, asked.registry, block_sizes=sizes, capacity=capacity, worth=worth),
        figures=_figures(rows, best),
    )


def _sizes(trace: Trace, wanted: Sequence[int] | None) -> list[int]:
    """The block sizes to try. Raises an error for a trace that cannot tell them."""
    own = trace.facts.block_tokens
    trace.need_ids()
    if wanted is not None and len(set(wanted)) < 2:
        raise ConfigError("--block-sizes: give two sizes at least to choose from")
    if wanted is not None:
        return sorted(set(wanted))
    if trace.ids == "token_ids":
        return list(TOKEN_SIZES)
    if own is None:
        raise TraceError(f"{trace.name} does not say how many tokens a block has; give --block-tokens")
    return [own * each for each in MULTIPLES]


def _tokens(capacity: str, token_bytes: Fraction | None) -> int:
    unit = split_quantity(capacity)[1]
    if unit not in BYTE_UNITS | TOKEN_UNITS:
        raise ConfigError(
            f"--capacity = {capacity}: blocks differ in size here, so give tokens or bytes, as in 4Mtok or 2TiB"
        )
    if unit in TOKEN_UNITS:
        return parse_tokens(capacity)
    if token_bytes is None:
        raise ConfigError(f"--capacity = {capacity} is in bytes; say with --model or --block-bytes how large KV is")
    return parse_bytes(capacity) // token_bytes


def _variant(base: dict[str, Any], by_tokens: bool, size: int, own: int, tokens: int | None) -> Variant:
    """A replay with blocks of ``size`` tokens: hashed so, or chunks of so many of the trace's ``own`` blocks."""
    chunk = 1 if by_tokens else size // own
    tier: dict[str, Any] = {"name": CACHE, "chunk": chunk}
    if tokens is not None:
        if tokens < size:
            raise ConfigError(f"--capacity = {tokens:,} tokens is less than one block of {size:,}")
        tier |= {"capacity": tokens // size * chunk, "policy": "lru"}
    settings = {name: value for name, value in base.items() if name not in SIZES_OF_KV}
    settings |= {"tiers": [tier], "belady": "off"} | ({"block_tokens": size} if by_tokens else {})
    return Variant({"block_tokens": size}, settings)


def _row(
    ran: Ran, bound: dict[str, Any], finest: dict[str, Any], span_ns: int | None, token_bytes: Fraction | None
) -> dict[str, Any]:
    """One size: hits, what is lost to whole blocks, entries of an index, events, and the bytes of one block."""
    size = ran.label["block_tokens"]
    tier = ran.summary["tiers"][0]
    chunk_blocks = ran.settings["tiers"][0]["chunk"]
    stored, evicted = tier["written_blocks"] // chunk_blocks, tier["retention"]["evicted_blocks"] // chunk_blocks
    seconds = None if not span_ns else span_ns / NS_PER_S
    return {
        "block_tokens": size,
        "token_rate": ratio(tier["hit_tokens"], ran.summary["tokens"]["input"]),
        "hit_tokens": tier["hit_tokens"],
        "infinite_token_rate": bound["token_rate"],
        "lost_tokens": finest["hit_tokens"] - bound["hit_tokens"],
        "short_prefix_requests": bound["shorter_than_block_requests"],
        "index_entries": tier["used_blocks"] // chunk_blocks,
        "events": stored + evicted,
        "events_per_s": None if seconds is None else (stored + evicted) / seconds,
        "block_bytes": None if token_bytes is None else int(token_bytes * size),
    }


def _best(rows: list[dict[str, Any]], worth: float) -> dict[str, Any]:
    """The largest blocks that hit at most ``worth`` less than the best ones."""
    most = max(row["token_rate"] or 0.0 for row in rows)
    return next(row for row in reversed(rows) if (row["token_rate"] or 0.0) >= most - worth)


def _advice(rows: list[dict[str, Any]], best: dict[str, Any], own: int | None, capacity: str | None) -> list[str]:
    where = "a cache of everything" if capacity is None else f"a cache of {capacity}"
    smallest, largest = rows[0], rows[-1]
    top = max(rows, key=lambda row: row["token_rate"] or 0.0)
    if not top["token_rate"]:
        return [f"Any: {where} hits nothing with blocks of {smallest['block_tokens']:,} tokens or more."]
    beside = top if best is not top else next((row for row in rows if row["block_tokens"] > best["block_tokens"]), best)
    compared = f"{points(abs(best['token_rate'] - beside['token_rate']))} {'less' if beside is top else 'more'}"
    advice = [
        f"Take blocks of {best['block_tokens']:,} tokens: {percent(best['token_rate'])} of input tokens hit in {where}"
        + (f", {compared} than with blocks of {beside['block_tokens']:,}." if beside is not best else ".")
    ]
    if best is not smallest:
        rate = f", {best['events_per_s']:,.3g} a second" if best["events_per_s"] is not None else ""
        advice.append(
            f"An index of them has {best['index_entries']:,} entries, and hears {best['events']:,} events{rate}; with "
            f"blocks of {smallest['block_tokens']:,} {smallest['index_entries']:,} and {smallest['events']:,}."
        )
    advice.append(
        f"Sub-block loss: blocks of {largest['block_tokens']:,} lose {largest['lost_tokens']:,} tokens that blocks of "
        f"{smallest['block_tokens']:,} hit; {largest['short_prefix_requests']:,} requests share less than one of them."
    )
    if best["block_bytes"] is not None:
        advice.append(f"A transfer of one block moves {format_bytes(best['block_bytes'])}.")
    if own is not None:
        advice.append(f"The trace has ids of {own:,} tokens, so what smaller blocks would hit is not known.")
    return advice


def _figures(rows: list[dict[str, Any]], best: dict[str, Any]) -> list[Figure]:
    drawn = [
        {"block_tokens": row["block_tokens"], "cache": cache, "token_rate": row[column]}
        for cache, column in (("LRU", "token_rate"), ("infinite", "infinite_token_rate"))
        for row in rows
    ]
    over_sizes = partial(lines, x="block_tokens", x_title="tokens of a block", x_log=True)
    rules = [(best["block_tokens"], "recommended")]
    return [
        over_sizes(
            "hits-by-block-size",
            "Hits by block size",
            drawn,
            y="token_rate",
            y_title="token rate",
            series="cache",
            percent=True,
            rules=rules,
        ),
        over_sizes(
            "index-by-block-size",
            "Entries of the index by block size",
            [{name: row[name] for name in ("block_tokens", "index_entries", "events")} for row in rows],
            y="index_entries",
            y_title="entries",
            rules=rules,
        ),
    ]
