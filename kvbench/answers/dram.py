"""How much DRAM? The exact curve of hits over gigabytes, where it flattens, and how long blocks stay.

One LRU cache of the whole trace is sized: the DRAM of all hosts together. Where hosts do not share it, each holds
copies of its own (``kvbench answer sharing``).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.variants import Variant, given_settings, run_variants
from kvbench.answers.words import parse_share, points
from kvbench.errors import ConfigError
from kvbench.replays.curve import CurvePass
from kvbench.replays.parts import parse_capacity
from kvbench.replays.plan import make_plan
from kvbench.report.figure import lines
from kvbench.results.curve import knee_of
from kvbench.results.curverates import RateTable
from kvbench.results.headline import percent
from kvbench.results.run import open_configured
from kvbench.units import BYTE_UNITS, NS_PER_S, format_bytes, format_duration_ns, parse_bytes, split_quantity

if TYPE_CHECKING:
    from kvbench.answers.answer import Asked
    from kvbench.report.figure import Figure

GIB = 2**30
STEPS = (Fraction(1), Fraction(3, 2))
"""Sizes that are tried: these times each power of two."""
ROWS = 10
TIER = "dram"


@dataclass(frozen=True, slots=True)
class Machines:
    """Whose bytes: ``workers`` of ``ranks`` that store, ``workers_per_host`` of them on a host, each block of
    ``block_bytes`` over the ranks of a worker (None: not known)."""

    block_bytes: int | None
    block_tokens: int
    workers: int
    workers_per_host: int
    ranks: int

    @property
    def hosts(self) -> int:
        """Hosts that so many workers take."""
        return -(-self.workers // self.workers_per_host)

    def round_sizes(self, blocks: int) -> list[int]:
        """Sizes of a host, rising, up to the first where all hosts hold ``blocks``: bytes, or blocks where their bytes
        are not known."""
        unit = self.block_bytes or 1
        last = -(-blocks // self.hosts) * unit
        sizes = [int(step * 2**power) for power in range(last.bit_length() + 1) for step in STEPS if power or step == 1]
        enough = next(at for at, size in enumerate(sizes) if size >= last)
        return [size for size in sizes[: enough + 1] if size >= unit]

    def blocks_of(self, size: int) -> int:
        """Blocks that all hosts hold in ``size`` each."""
        return size // (self.block_bytes or 1) * self.hosts

    def row(self, size: int) -> dict[str, int]:
        """``size`` of a host in all units."""
        blocks = self.blocks_of(size)
        row = {"capacity_blocks": blocks, "capacity_tokens": blocks * self.block_tokens}
        if self.block_bytes is None:
            return row
        share = min(self.workers, self.workers_per_host) * self.ranks
        return {"host_bytes": size, "rank_bytes": size // share, "cluster_bytes": size * self.hosts, **row}


class Curve:
    """The exact LRU curve over sizes of a host."""

    def __init__(self, found: CurvePass, machines: Machines) -> None:
        self._table = RateTable(found)
        self.machines = machines
        changes = found.changes()
        self.knee = knee_of(self._table, changes)
        self.saturation_blocks = int(changes[-1]) if len(changes) else 1
        self.rate = "token" if found.block_tokens else "block"
        self.bound = self._rates([self.saturation_blocks])[0]

    def _rates(self, blocks: list[int]) -> list[float]:
        rising = sorted(set(blocks))
        found = self._table.rates(np.array(rising, np.int64))
        rates = {at: row[self.rate] or 0.0 for at, row in zip(rising, found, strict=True)}
        return [rates[at] for at in blocks]

    def at(self, size: int) -> float:
        """The rate at ``size`` of each host."""
        return self._rates([self.machines.blocks_of(size)])[0]

    def gain(self, size: int) -> float:
        """What twice ``size`` adds to the rate."""
        return self.at(2 * size) - self.at(size)

    def choose(self, sizes: list[int], worth: float) -> int:
        """The smallest of the rising ``sizes`` from which on doubling never adds ``worth``; so a plateau before a step
        is not taken for the end. The largest where each is worth doubling."""
        at = len(sizes) - 1
        while at and self.gain(sizes[at - 1]) < worth:
            at -= 1
        return sizes[at]

    def rows(self, sizes: list[int]) -> list[dict[str, Any]]:
        """Rising sizes in all units, their rates, and what each gains over the one before for a GiB or 1,000 blocks."""
        machines, rows = self.machines, []
        rates = self._rates([machines.blocks_of(size) for size in sizes])
        unit, name = (GIB, "gib") if machines.block_bytes is not None else (1_000, "1000_blocks")
        before, rate_before = 0, 0.0
        for size, rate in zip(sizes, rates, strict=True):
            each = size * machines.hosts
            rows.append(
                machines.row(size)
                | {
                    f"{self.rate}_rate": rate,
                    "infinite_share": rate / self.bound if self.bound else None,
                    f"gain_rate_per_{name}": (rate - rate_before) / (each - before) * unit,
                    "doubling_gain_rate": self.gain(size),
                }
            )
            before, rate_before = each, rate
        return rows


def answer(
    asked: Asked,
    *,
    capacity: str | None = None,
    workers: int = 1,
    workers_per_host: int | None = None,
    worth: str = "1%",
) -> Answer:
    """Rates, gains and retention at sizes of a host, and the one from which on doubling is not worth it.

    ``capacity``  sizes of a host to choose from; by default round ones.
    ``worth``     what doubling must add to the rate.
    """
    share = parse_share(worth, "--worth")
    if workers_per_host is not None and workers == 1:
        raise ConfigError("--workers-per-host has no effect with one worker; give --workers")
    on_host = 1 if workers_per_host is None else workers_per_host
    for name, count in (("--workers", workers), ("--workers-per-host", on_host)):
        if count < 1:
            raise ConfigError(f"{name} = {count} must be at least 1")
    trace = open_configured(asked.config)
    plan = make_plan(asked.config, asked.registry, trace)
    found = asked.passed(CurvePass(plan, trace), trace)
    ranks = 1 if plan.layout is None else plan.layout.stored_ranks
    machines = Machines(plan.block_bytes, found.block_tokens, workers, on_host, ranks)
    curve = Curve(found, machines)
    sizes = _given(capacity, machines) if capacity is not None else machines.round_sizes(curve.saturation_blocks)
    chosen = curve.choose(sizes, share)
    shown = curve.rows(sizes if capacity is not None else readable(sizes, chosen))
    for row, found_there in zip(shown, _replayed(asked, shown, curve.rate), strict=True):
        row |= found_there
    options = {"capacity": capacity, "workers": workers, "workers_per_host": on_host, "worth": worth}
    return Answer(
        question="dram",
        advice=_advice(curve, chosen, next(row for row in shown if _size(row, machines) == chosen), share),
        tables={"capacities": pa.Table.from_pylist(shown, _schema(shown[0]))},
        manifest=manifest_of(plan, trace, asked.registry, **options),
        figures=_figures(curve, curve.rows(sizes), shown, chosen),
    )


def _size(row: dict[str, Any], machines: Machines) -> int:
    size: int = row["capacity_blocks"] // machines.hosts if machines.block_bytes is None else row["host_bytes"]
    return size


def _given(text: str, machines: Machines) -> list[int]:
    """The sizes of a host in ``text``, rising."""
    sizes = set()
    for each in text.split(","):
        blocks, share = parse_capacity(each.strip(), machines.block_bytes, block_tokens=machines.block_tokens)
        if share is not None or blocks is None:
            raise ConfigError(f"--capacity = {each.strip()}: give sizes to buy, as in 64GiB,128GiB, blocks or tokens")
        in_bytes = split_quantity(each)[1] in BYTE_UNITS
        sizes.add(parse_bytes(each) if in_bytes else blocks * (machines.block_bytes or 1))
    return sorted(sizes)


def readable(sizes: list[int], chosen: int) -> list[int]:
    """Some of ``sizes``: powers of two up to the last, the chosen one and its double."""
    some = [size for size in sizes if size.bit_count() == 1][-ROWS:]
    return sorted({*some, chosen, 2 * chosen} & {*sizes, 2 * chosen})


def _replayed(asked: Asked, rows: list[dict[str, Any]], rate: str) -> list[dict[str, Any]]:
    """What only a replay tells of a capacity: the bound of a cache that knows the future, and how old blocks were when
    they were evicted."""
    base = given_settings(asked.config) | {"belady": "on"}
    variants = [
        Variant({"capacity": blocks}, base | {"tiers": [{"name": TIER, "capacity": blocks, "policy": "lru"}]})
        for blocks in (row["capacity_blocks"] for row in rows)
    ]
    ages = [(ran.summary, ran.summary["tiers"][0]["retention"]["mean_s"]) for ran in run_variants(asked, variants)]
    return [
        {
            f"belady_{rate}_rate": summary["belady_rates"][rate],
            "retention_ns": None if age_s is None else round(age_s * NS_PER_S),
        }
        for summary, age_s in ages
    ]


def _schema(row: dict[str, Any]) -> pa.Schema:
    return pa.schema([(name, pa.float64() if "rate" in name or "share" in name else pa.int64()) for name in row])


def _advice(curve: Curve, chosen: int, row: dict[str, Any], worth: float) -> list[str]:
    machines, rate = curve.machines, row[f"{curve.rate}_rate"]
    of = "input tokens" if curve.rate == "token" else "blocks"
    if not curve.bound:
        return [f"Buy none for this: no {of} would hit, however large the cache (kvbench answer reuse says why)."]
    if machines.block_bytes is None:
        size = f"{chosen:,} block{'s' if chosen > 1 else ''}" + (" a host" if machines.hosts > 1 else "")
    else:
        everywhere = f" a host, {format_bytes(chosen * machines.hosts)} on {machines.hosts:,} hosts"
        size = format_bytes(chosen) + (everywhere if machines.hosts > 1 else "")
    verb = "Keep" if machines.block_bytes is None else "Buy"
    advice = [
        f"{verb} {size} ({row['capacity_tokens']:,} tokens): {percent(rate)} of {of} hit, "
        f"{percent(rate / curve.bound)} of the {percent(curve.bound)} that any cache could; doubling adds "
        f"{points(row['doubling_gain_rate'])}."
    ]
    if row["doubling_gain_rate"] >= worth:
        advice.append("That is the largest size given, and doubling it is worth it: try larger ones.")
    if machines.block_bytes is None:
        advice.append("In GiB: say how large KV is with --model MODEL (and --tp), or with --block-bytes.")
    advice += [_gap(curve, row), _stay(row)]
    if curve.knee is not None:
        knee = _in_words(curve.knee["capacity_blocks"], machines)
        advice.append(f"The knee of the curve is at {knee}, with {percent(curve.knee['value'])}.")
    advice.append(f"From {_in_words(curve.saturation_blocks, machines)} on, more room adds nothing.")
    if machines.hosts > 1:
        advice.append(
            "This is one cache over all hosts; where each has its own, blocks are kept several times: kvbench answer "
            "sharing says what that costs."
        )
    return advice


def _gap(curve: Curve, row: dict[str, Any]) -> str:
    gap = row[f"belady_{curve.rate}_rate"] - row[f"{curve.rate}_rate"]
    return (
        f"These are hits of LRU; knowing the future would add {points(gap)} at this size: kvbench answer eviction says "
        "what other policies get of it."
    )


def _stay(row: dict[str, Any]) -> str:
    if row["retention_ns"] is None:
        return "Nothing is evicted at this size over the whole trace."
    return f"Blocks are {format_duration_ns(row['retention_ns'])} old when they are evicted there (mean)."


def _in_words(blocks: int, machines: Machines) -> str:
    if machines.block_bytes is None:
        return f"{blocks:,} blocks"
    return f"{format_bytes(blocks * machines.block_bytes)} in all"


def _figures(curve: Curve, rows: list[dict[str, Any]], replayed: list[dict[str, Any]], chosen: int) -> list[Figure]:
    """Hits over the size of a host: LRU, the Belady bound, and an infinite cache."""
    machines, rate = curve.machines, f"{curve.rate}_rate"
    sized = machines.block_bytes is not None
    x, title, unit = ("host_gib", "GiB of a host", GIB) if sized else ("host_blocks", "blocks of a host", 1)
    from_there = [row for row in rows if _size(row, machines) >= _size(replayed[0], machines)]
    drawn = [
        {x: _size(row, machines) / unit, "cache": cache, rate: row[column] if column else curve.bound}
        for cache, column, of in (
            ("LRU", rate, from_there),
            ("OPT (Belady)", f"belady_{rate}", replayed),
            ("infinite", "", [from_there[0], from_there[-1]]),
        )
        for row in of
    ]
    return [
        lines(
            "hits-by-size",
            "Hits over DRAM",
            drawn,
            x=x,
            y=rate,
            series="cache",
            x_title=title,
            y_title=f"{curve.rate} rate",
            x_log=True,
            percent=True,
            rules=[(chosen / unit, "recommended")],
        )
    ]
