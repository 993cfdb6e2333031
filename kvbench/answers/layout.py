"""Which KV layout? Bytes of models, dtypes and tensor-parallel widths, and what of a trace hits in the same bytes.

The exact LRU curve of the trace is over blocks; how many of them a size in bytes holds is a matter of the layout.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.variants import table_of
from kvbench.answers.words import points
from kvbench.errors import ConfigError, TraceError
from kvbench.replays.curve import CurvePass
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars
from kvbench.results.curverates import RateTable
from kvbench.results.headline import percent
from kvbench.results.run import open_configured
from kvbench.serving.capacity import capacity_of
from kvbench.serving.kvsize import KvLayout, check_tokens
from kvbench.serving.models import kv_layout
from kvbench.trace.columns import numbers
from kvbench.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.answer import Asked
    from kvbench.report.figure import Figure
    from kvbench.trace.reader import Trace

WIDTHS = (1, 8)
NARROW = "fp8"
MAX_BLOCKS = 2**30
"""A curve is read no farther."""


def answer(
    asked: Asked,
    *,
    model: Sequence[str] = (),
    kv_dtype: Sequence[str] = (),
    tp: Sequence[int] = (),
    capacity: str = "1TiB",
    context_tokens: int | None = None,
) -> Answer:
    """Size each layout, and read from the curve what ``capacity`` then hits.

    ``model``     presets or config.json files; ``config.models`` has more.
    ``kv_dtype``  of the stored KV; none: the model's own, and fp8.
    ``tp``        ranks of a worker; none: 1 and 8.
    ``capacity``  sizes of a host with one worker, as in ``256GiB,1TiB``.
    ``context_tokens``  of a full context; None: the longest prompt of the trace with its answer.
    """
    if not model:
        raise ConfigError("--model: name one at least, a preset (kvbench kv-size lists them) or a config.json")
    sizes = {text.strip(): parse_bytes(text.strip()) for text in capacity.split(",")}
    config = msgspec.structs.replace(asked.config, models=None)
    trace = open_configured(config)
    plan = make_plan(config, asked.registry, trace)
    block_tokens = trace.facts.block_tokens
    if trace.ids is None or block_tokens is None:
        raise TraceError(f"{trace.name} has no blocks of known size, so nothing is known of what a capacity hits")
    layouts = _layouts(asked.config.models, model, kv_dtype, tp)
    context = _longest(trace) if context_tokens is None else check_tokens(context_tokens, "--context-tokens")
    table = RateTable(asked.passed(CurvePass(plan, trace), trace))
    rows = [_layout_row(layout, block_tokens, context) for layout in layouts]
    held = [
        _held_row(layout, size, block_tokens, context, table) | {"capacity": text}
        for text, size in sizes.items()
        for layout in layouts
    ]
    held = [{"capacity": row.pop("capacity"), **row} for row in held]
    options = {"capacity": capacity, "context_tokens": context, "layouts": [name_of(layout) for layout in layouts]}
    return Answer(
        question="layout",
        advice=_advice(layouts, rows, held, context),
        tables={"layouts": table_of(rows), "capacities": table_of(held)},
        manifest=manifest_of(plan, trace, asked.registry, **options),
        figures=_figures(held),
    )


def _layouts(
    models_file: str | None, model: Sequence[str], kv_dtype: Sequence[str], tp: Sequence[int]
) -> list[KvLayout]:
    """Every model, dtype and width; multi-head latent attention over several ranks both stored by each and once."""
    file = None if models_file is None else Path(models_file)
    found = {}
    for name in model:
        for dtype in kv_dtype or (None, NARROW):
            for ranks in tp or WIDTHS:
                each = kv_layout(name, ranks, dtype, file)
                once = [False, True] if each.shape.is_mla and ranks > 1 else [False]
                for stored_once in once:
                    layout = KvLayout(each.shape, ranks, stored_once)
                    found[name_of(layout)] = layout
    return list(found.values())


def name_of(layout: KvLayout) -> str:
    """A layout in few words."""
    once = " stored once" if layout.once else ""
    return f"{layout.name} {layout.shape.dtype} TP {layout.ranks}{once}"


def _longest(trace: Trace) -> int:
    """The longest prompt with its answer, in tokens."""
    longest = 1
    for batch in trace.batches():
        tokens = numbers(batch.column("input_tokens")).astype(np.int64)
        if "output_tokens" in batch.schema.names:
            tokens = tokens + numbers(batch.column("output_tokens"))
        longest = max(longest, int(tokens.max(initial=1)))
    return longest


def _layout_row(layout: KvLayout, block_tokens: int, context: int) -> dict[str, Any]:
    shape = layout.shape
    kind = "MLA" if shape.is_mla else "heads"
    hybrid = shape.window_layers > 0 or shape.state is not None or shape.fixed_bytes > 0
    return {
        "layout": name_of(layout),
        "attention": f"{kind}, hybrid" if hybrid else kind,
        "rank_token_bytes": layout.rank_bytes_per_token,
        "token_bytes": layout.bytes_per_token,
        "fixed_request_bytes": layout.fixed_bytes,
        "block_bytes": layout.block_bytes(block_tokens),
        "full_context_bytes": layout.bytes_of(context),
    }


def _held_row(layout: KvLayout, size: int, block_tokens: int, context: int, table: RateTable) -> dict[str, Any]:
    """What ``size`` bytes of a host with one worker hold of a layout, and what then hits."""
    held = capacity_of(layout, size, "host", block_tokens=block_tokens, request_tokens=context)
    rates = table.rates(np.array([min(held.host.blocks, MAX_BLOCKS)], np.int64))[0]
    return {
        "layout": name_of(layout),
        "rank_bytes": held.rank.size,
        "capacity_blocks": held.host.blocks,
        "capacity_tokens": held.host.tokens,
        "full_context_requests": held.host.requests,
        "token_rate": rates["token"] or 0.0,
    }


def _advice(layouts: list[KvLayout], rows: list[dict[str, Any]], held: list[dict[str, Any]], context: int) -> list[str]:
    capacity = held[0]["capacity"]
    there = [row for row in held if row["capacity"] == capacity]
    best, worst = (choose(there, key=lambda row: row["token_rate"]) for choose in (max, min))
    if not best["token_rate"]:
        return [
            f"None is better than another: nothing of this trace hits in {capacity} (kvbench answer reuse says why)."
        ]
    advice = [
        f"In {capacity} a host {_alike(best, there)} hits most: {percent(best['token_rate'])} of the input tokens, "
        f"with room for {best['capacity_tokens']:,}."
    ]
    if worst["token_rate"] < best["token_rate"]:
        advice[0] += (
            f" {_alike(worst, there)} hits {percent(worst['token_rate'])}, "
            f"{points(best['token_rate'] - worst['token_rate'])} less, with room for {worst['capacity_tokens']:,}."
        )
    else:
        advice[0] += " So do all the others: what layouts differ in decides nothing at this size."
    advice += _gains(layouts, {row["layout"]: row["token_rate"] for row in there})
    for row, fits in zip(rows, there, strict=True):
        if row["layout"] == best["layout"]:
            advice.append(
                f"A request of {context:,} tokens takes {format_bytes(row['full_context_bytes'])} of it; "
                f"{fits['full_context_requests']:,} that share nothing fit into {capacity}."
            )
    return advice


def _alike(row: dict[str, Any], there: list[dict[str, Any]]) -> str:
    """The layout of ``row``, with all widths at which it holds as much and hits as much."""
    name, _, rest = str(row["layout"]).partition(" TP ")
    once = rest.partition(" ")[2]
    ranks = []
    for each in there:
        other, _, its = str(each["layout"]).partition(" TP ")
        width, _, stored = its.partition(" ")
        same = (other, stored, each["capacity_blocks"], each["token_rate"])
        if same == (name, once, row["capacity_blocks"], row["token_rate"]):
            ranks.append(width)
    return f"{name} TP {' and '.join(ranks)}{f' {once}' if once else ''}"


def _gains(layouts: list[KvLayout], rates: dict[str, float]) -> list[str]:
    """Sentences on what narrower numbers, and storing MLA once, are worth; widths with equal gains in one."""
    found: dict[tuple[str, str], list[str]] = {}
    for layout, other in itertools.permutations(layouts, 2):
        if (other.name, other.ranks) != (layout.name, layout.ranks):
            continue
        gained = rates[name_of(other)] - rates[name_of(layout)]
        if not gained:
            continue
        gain = points(gained)
        of, once = f"{layout.name} {layout.shape.dtype}", " stored once" if layout.once else ""
        if other.shape == layout.shape and other.once and not layout.once:
            what = f"Storing the latent once, not on each rank, adds {gain} to {of}"
        elif other.once == layout.once and other.bytes_per_token < layout.bytes_per_token:
            what = f"{other.shape.dtype} adds {gain} to {of}{once}"
        else:
            continue
        found.setdefault((what, once), []).append(str(layout.ranks))
    return [f"{what} at TP {' and '.join(ranks)}." for (what, _), ranks in found.items()]


def _figures(held: list[dict[str, Any]]) -> list[Figure]:
    return [
        bars(
            "hits-by-layout",
            "Hits by layout in the same bytes",
            [{name: row[name] for name in ("layout", "capacity", "token_rate", "capacity_tokens")} for row in held],
            x="layout",
            y="token_rate",
            series="capacity",
            stacked=False,
            horizontal=True,
            percent=True,
            x_title="layout",
            y_title="token rate",
        )
    ]
