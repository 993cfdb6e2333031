"""Private caches or one shared pool? The last tier, one of each worker and one of all, with the same bytes in all.

Blocks of a pool are taken to lie evenly on the hosts, so of what is read and written all but one host's share crosses
the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.answers.answer import Answer, manifest_of
from kvbench.answers.router import EVEN
from kvbench.answers.tierrows import link_utilisation, tier_rows
from kvbench.answers.variants import Ran, Variant, given_settings, part_name, read_trace, run_variants, table_of
from kvbench.answers.words import points
from kvbench.config import load_config
from kvbench.errors import ConfigError
from kvbench.replays.engine import keyed_trace, resolve_tiers
from kvbench.replays.plan import make_plan
from kvbench.report.figure import bars
from kvbench.results.headline import percent
from kvbench.results.rates import ratio
from kvbench.serving.device import DAY_NS
from kvbench.units import NS_PER_S, format_bytes, format_duration_ns, split_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.answers.answer import Asked
    from kvbench.config import RunConfig
    from kvbench.report.figure import Figure
    from kvbench.trace.reader import Trace

CACHE = "cache"
"""The tier on trial where no stack is given."""

ROUTERS = ("round-robin", "max-prefix", "pstack-loadaware")
"""Without a choice: one that looks at no cache, one that looks at nothing else, and one that looks at the load, too,
and so may do for private caches what a pool would."""

WORTH = 0.01
"""A token rate that is higher by less, or a time that is shorter by less than this share, decides nothing."""

UNEVEN = ": too uneven to measure a pool by"
"""Said of a router whose busiest worker gets more than :data:`EVEN` times the mean."""

KINDS = {"worker": "private", "host": "one a host", "cluster": "one pool"}
"""What a tier of a scope is called."""


def answer(
    asked: Asked,
    *,
    candidates: Sequence[Any] = (),
    workers_per_host: int = 1,
    pool_device: str | None = None,
) -> Answer:
    """Replay private caches, and shared ones as large as these together.

    ``candidates``        who serves a request; none: that of the run, or :data:`ROUTERS`.
    ``workers_per_host``  workers of a host; several may share one cache, too.
    ``pool_device``       what times the reads and writes of a shared pool; None: as of a private cache.
    """
    config = asked.config
    if pool_device is not None and config.compute is None:
        raise ConfigError("--pool-device has no effect without --compute: in order replay no transfer takes time")
    if workers_per_host > 1 and workers_per_host >= config.workers:
        raise ConfigError(f"--workers-per-host = {workers_per_host} leaves one host, and nothing crosses the network")
    if config.workers % workers_per_host:
        raise ConfigError(f"--workers-per-host = {workers_per_host} does not divide {config.workers:,} workers evenly")
    trace = read_trace(config)
    plan = make_plan(config, asked.registry, trace)
    settings = _in_blocks(_as_stack(config), asked, trace)
    chosen = list(candidates) or ([config.router] if config.router is not None else list(ROUTERS))
    ran = run_variants(asked, _variants(settings, chosen, workers_per_host, pool_device))
    hosts = -(-config.workers // workers_per_host)
    rows = [_row(each, hosts) for each in ran]
    return Answer(
        question="sharing",
        advice=_advice(rows, ran),
        tables={"caches": table_of(rows), "tiers": table_of(tier_rows(ran))},
        manifest=manifest_of(
            plan,
            trace,
            asked.registry,
            candidates=[part_name(each) for each in chosen],
            workers_per_host=workers_per_host,
            pool_device=pool_device,
        ),
        figures=_figures(rows),
    )


def _as_stack(config: RunConfig) -> dict[str, Any]:
    """The settings with the tiers of a stack. Raises ConfigError where there is nothing to share."""
    if config.workers < 2:
        raise ConfigError("one worker has nobody to share with; give --workers")
    settings = given_settings(config)
    if config.tiers is None:
        tier = {"name": CACHE, "capacity": settings.pop("capacity", "infinite"), "policy": settings.pop("policy", None)}
        settings["tiers"] = [tier]
    last = settings["tiers"][-1]
    if last["capacity"] == "infinite":
        raise ConfigError(f"tier {last['name']} has no bound, so that private caches hold all; give it a capacity")
    if last.get("scope", "worker") != "worker":
        raise ConfigError(f"tier {last['name']} of scope {last['scope']} is shared; give it as it is of one worker")
    return settings


def _in_blocks(settings: dict[str, Any], asked: Asked, trace: Trace) -> dict[str, Any]:
    """The settings with the capacity of the last tier in blocks where it is a share of the distinct ones, for a pool as
    large as several of these may be larger than all of them."""
    *above, last = settings["tiers"]
    if split_quantity(str(last["capacity"]))[1] != "%":
        return settings
    stack = make_plan(load_config(None, dict(settings)), asked.registry, trace)
    chunks = resolve_tiers(stack, keyed_trace(trace, [stack]))[-1]
    assert chunks is not None
    return settings | {"tiers": [*above, last | {"capacity": chunks * last.get("chunk", 1)}]}


def _variants(
    settings: dict[str, Any], routers: Sequence[Any], workers_per_host: int, pool_device: str | None
) -> list[Variant]:
    *above, last = settings["tiers"]
    workers = settings["workers"]
    groups = {"worker": 1, "host": workers_per_host, "cluster": workers}
    if workers_per_host == 1:
        del groups["host"]
    found = []
    for router in routers:
        for scope, group in groups.items():
            tier = last | {"scope": scope, "capacity": _times(last["capacity"], group)}
            if scope == "cluster" and pool_device is not None:
                tier["device"] = pool_device
            changed = settings | {"router": router, "tiers": [*above, tier]}
            if scope == "host":
                changed["workers_per_host"] = workers_per_host
            found.append(Variant({"router": part_name(router), "caches": KINDS[scope]}, changed))
    return found


def _times(capacity: int | str, stores: int) -> str:
    number, unit = split_quantity(str(capacity))
    product = number * stores
    return f"{product.numerator if product.denominator == 1 else float(product)}{unit}"


def _row(ran: Ran, hosts: int) -> dict[str, Any]:
    summary, tier = ran.summary, ran.summary["tiers"][-1]
    row = {
        **ran.label,
        "stores": tier["stores"],
        "blocks_each": tier["capacity_blocks"],
        "blocks_in_all": tier["all_stores_blocks"],
        "token_rate": summary["rates"]["token"],
        "hit_blocks": tier["hit_blocks"],
        "max_over_mean_requests": summary["workers"]["max_over_mean_requests"],
        "other_worker_blocks": summary["misses"]["other_worker"],
        "duplication": ratio(tier["used_blocks"], tier["distinct_used_blocks"]),
        **_across(tier, hosts if tier["scope"] == "cluster" else 1),
    }
    if "timed" not in summary:
        return row
    timed = summary["timed"]
    return row | {
        "reading_share": link_utilisation(summary, tier["tier"], "read"),
        "writing_share": link_utilisation(summary, tier["tier"], "write"),
        "ttft_mean_ns": timed["ttft_ns"]["mean"],
        "ttft_p99_ns": timed["ttft_ns"]["p99"],
        "verdict": timed["verdict"]["state"],
    }


def _across(tier: dict[str, Any], hosts: int) -> dict[str, Any]:
    """Bytes between hosts, and how many a second of the trace; blocks where their bytes are not known."""
    unit = "blocks" if tier["read_bytes"] is None else "bytes"
    read, written = tier[f"read_{unit}"], tier[f"written_{unit}"]
    across = (read + written) * (hosts - 1) / hosts
    row = {f"read_{unit}": read, f"written_{unit}": written, f"across_{unit}": round(across)}
    if unit == "bytes" and written and tier["written_bytes_per_day"]:
        row["across_bytes_per_s"] = across / written * tier["written_bytes_per_day"] / (DAY_NS / NS_PER_S)
    return row


def _advice(rows: list[dict[str, Any]], ran: Sequence[Ran]) -> list[str]:
    timed = "ttft_mean_ns" in rows[0]
    private = [row for row in rows if row["caches"] == KINDS["worker"]]
    shared = [row for row in rows if row["caches"] != KINDS["worker"]]

    def worth(row: dict[str, Any]) -> float:
        return float(-row["ttft_mean_ns"] if timed else row["token_rate"])

    even = private if timed else [row for row in private if row["max_over_mean_requests"] <= EVEN]
    local, pool = max(even or private, key=worth), max(shared, key=worth)
    gain = pool["token_rate"] - local["token_rate"]
    better = pool["ttft_mean_ns"] < (1 - WORTH) * local["ttft_mean_ns"] if timed else gain >= WORTH
    rates = f"{percent(pool['token_rate'])} of the input tokens hit, {points(gain)} more than"
    if gain < 0:
        rates = f"{percent(pool['token_rate'])} of the input tokens hit, {points(-gain)} less than"
    text = (
        f"{'Share' if better else 'Stay private'}: of {pool['blocks_in_all']:,} blocks in all, {pool['caches']} "
        f"({pool['router']}) lets {rates} private caches do ({local['router']}, {percent(local['token_rate'])})"
    )
    if timed:
        times = [format_duration_ns(row["ttft_mean_ns"]) for row in (pool, local)]
        text += f"; the mean TTFT is {times[0]} instead of {times[1]}"
    copies = [
        f"Private caches under {row['router']} hold each of their blocks {row['duplication']:.2f} times at the end, "
        f"miss {row['other_worker_blocks']:,} that another worker holds, and send the busiest worker "
        f"{row['max_over_mean_requests']:.2f} times the mean{'' if timed or row in even or not even else UNEVEN}."
        for row in private
    ]
    one_pool = max((row for row in shared if row["caches"] == KINDS["cluster"]), key=worth)
    return [f"{text}.", *copies, *_network(one_pool)]


def _network(pool: dict[str, Any]) -> list[str]:
    if "across_bytes" not in pool:
        return [f"{pool['across_blocks']:,} blocks cross the network; --model or --block-bytes says how many bytes."]
    text = f"{format_bytes(pool['across_bytes'])} cross the network"
    if "across_bytes_per_s" in pool:
        text += f", {format_bytes(round(pool['across_bytes_per_s']))} a second on average"
    if pool.get("reading_share") is not None:
        text += f"; the pool's device reads {percent(pool['reading_share'])} of the time"
    return [f"{text}."]


def _figures(rows: list[dict[str, Any]]) -> list[Figure]:
    hits = [{key: row[key] for key in ("router", "caches", "token_rate")} for row in rows]
    copies = [{key: row[key] for key in ("router", "caches", "duplication")} for row in rows]
    common: dict[str, Any] = {"x": "router", "x_title": "router", "series": "caches", "stacked": False}
    return [
        bars("hits", "Hits at equal capacity", hits, y="token_rate", y_title="token rate", percent=True, **common),
        bars("duplication", "Copies of a block", copies, y="duplication", y_title="copies of each block", **common),
    ]
