"""``kvbench answer``: the questions about a system, which replays of it settle."""

from __future__ import annotations

from typing import Any

import click

from kvbench.cli.answer import answer_options, executor_option, give_answer
from kvbench.cli.options import all_of, clock_options, routing_options, tier_options
from kvbench.cli.parts import PartType
from kvbench.specs import AdmissionSpec, EvictionPolicySpec, RouterPolicySpec

workers_option = click.option("--workers", type=int, metavar="N", help="Engine replicas.  [default: 1]")
router_option = click.option(
    "--router", type=PartType(RouterPolicySpec), help="Who serves a request.  [default: max-prefix]"
)
routers_option = click.option(
    "--router",
    "candidates",
    multiple=True,
    type=PartType(RouterPolicySpec),
    help="Who serves a request, with its weights, as in llmd,prefix=3; several to choose from.",
)
seed_option = click.option("--seed", type=int, metavar="N", help="Of every random choice.  [default: 0]")
cache_options = all_of(
    (
        click.option(
            "--capacity", metavar="SIZE", help="Of each worker: blocks (10k), bytes (64GiB), or a share (10%)."
        ),
        click.option("--policy", type=PartType(EvictionPolicySpec), help="Eviction policy.  [default: lru]"),
    )
)


def _answer(ctx: click.Context, question: str, settings: dict[str, Any]) -> None:
    """Options that can be repeated and were not given are None, as the others are."""
    given = {name: list(value) or None if isinstance(value, tuple) else value for name, value in settings.items()}
    give_answer(ctx, question, given)


@click.command(
    epilog="""\b
Examples:
  kvbench answer nvme trace.arrow --model Llama-3.1-70B --tp 8 --prefill-tokens-per-s 5000 \\
    --tier gpu,capacity=2500 --tier cpu,capacity=10k,device=cpu-pcie5 --tier nvme,capacity=30k,device=nvme-gen4
  kvbench answer nvme trace.arrow --model Llama-3.1-70B --tp 8 --compute roofline --slo ttft=2s \\
    --tier gpu,capacity=2500 --tier nvme,capacity=30k,device=nvme-gen4 --size 10k,30k,100k -o nvme"""
)
@click.argument("trace")
@click.option(
    "--trial", multiple=True, metavar="NAME", help="A tier that may be added, by its name.  [default: the last]"
)
@click.option(
    "--size",
    "sizes",
    metavar="SIZE,…",
    help="Capacities to try of a tier on trial.  [default: ¼, ½, 1 and 2 of its own; of several tiers their own]",
)
@workers_option
@router_option
@tier_options()
@clock_options()
@seed_option
@executor_option
@answer_options("sizes in bytes")
def nvme(ctx: click.Context, /, sizes: str | None, **settings: Any) -> None:
    """Add NVMe or a shared file system?

    The stack of tiers (--tier) without and with those on trial, at several sizes: hits and bytes by tier, from how many
    tokens on reading beats computing, how old blocks get and how soon they are used again, wear, and tiers that do
    nothing. With --compute the replays are timed, and fetching by both rules (load=always, cheaper) is tried.
    """
    _answer(ctx, "nvme", settings | {"sizes": _listed(sizes)})


@click.command(
    epilog="""\b
Examples:
  kvbench answer sharing trace.arrow --workers 10 --capacity 3Mtok
  kvbench answer sharing trace.arrow --workers 8 --workers-per-host 4 --model Llama-3.1-70B --tp 2 --compute roofline \\
    --tier gpu,capacity=2500 --tier cpu,capacity=64GiB,device=cpu-pcie5 --pool-device rdma-400g"""
)
@click.argument("trace")
@click.option("--workers", type=int, metavar="N", help="Engine replicas.")
@cache_options
@routers_option
@click.option(
    "--pool-device",
    metavar="NAME",
    help="What times the reads and writes of a shared pool.  [default: as a private cache]",
)
@tier_options()
@clock_options()
@seed_option
@executor_option
@answer_options("sizes in bytes")
def sharing(ctx: click.Context, /, **settings: Any) -> None:
    """Private caches or one shared pool?

    The last tier (or the only one), one of each worker, and one of all, with the same bytes in all: hits, copies of a
    block, bytes between hosts and, with --compute, TTFT and how busy the links are. --workers-per-host tries one a
    host, too.
    """
    _answer(ctx, "sharing", settings)


@click.command(
    epilog="""\b
Examples:
  kvbench answer eviction traces/chat.arrow
  kvbench answer eviction trace.arrow --policy lru --policy arc --policy s3-fifo --capacity 1k,10k,100k -o eviction
  kvbench answer eviction trace.arrow --block-bytes 2MiB --tier gpu,capacity=1k --tier nvme,device=nvme-gen4 \\
    --capacity 10k,50k --admission min-count,n=3"""
)
@click.argument("trace")
@click.option(
    "--policy", "policies", multiple=True, type=PartType(EvictionPolicySpec), help="Eviction policies to choose from."
)
@click.option(
    "--capacity", "capacities", metavar="SIZE,…", help="Of the cache, or of the last tier.  [default: 1%,5%,20%]"
)
@click.option(
    "--admission", "admissions", multiple=True, type=PartType(AdmissionSpec), help="Admission filters to try."
)
@click.option(
    "--stress",
    type=float,
    metavar="SHARE",
    help="Of the requests of a mix that are a scan or a loop; 0: no stress.  [default: 0.2]",
)
@workers_option
@router_option
@tier_options()
@seed_option
@executor_option
@answer_options("sizes in bytes")
def eviction(ctx: click.Context, /, capacities: str | None, **settings: Any) -> None:
    """Which eviction and admission policy?

    Policies by capacities with the gap to the Belady bound. At the middle capacity also what a scan and a loop do to
    them, what admission filters keep out and what that costs, what each tenant hits, and what an operation costs.
    """
    _answer(ctx, "eviction", settings | {"capacities": _listed(capacities)})


@click.command(
    epilog="""\b
Examples:
  kvbench answer router trace.arrow --workers 10 --capacity 5859
  kvbench answer router trace.arrow --workers 8 --capacity 5k --router llmd --router llmd,prefix=3 --router round-robin
  kvbench answer router trace.arrow --workers 8 --capacity 5k --model Llama-3.1-8B --compute roofline --slo ttft=1s"""
)
@click.argument("trace")
@click.option("--workers", type=int, metavar="N", help="Engine replicas.")
@cache_options
@routers_option
@click.option("--delay", "delays", metavar="LAG,…", help="Trials: lags of events; '' for none.  [default: 1s,10s,30s]")
@click.option(
    "--loss", "losses", metavar="SHARE,…", help="Trials: shares of messages that are lost.  [default: 0.01,0.1]"
)
@click.option("--views", metavar="N,…", help="Trials: numbers of routers side by side.  [default: 2,4]")
@routing_options()
@tier_options()
@clock_options()
@seed_option
@executor_option
@answer_options("sizes in bytes")
def router(ctx: click.Context, /, delays: str | None, losses: str | None, views: str | None, **settings: Any) -> None:
    """Which router policy, with which weights?

    Hits against load (with --compute against TTFT), what the best could have hit, what the index predicted and what was
    delivered; and what becomes of the best router with events that are late or lost, several routers, and a worker that
    restarts.
    """
    lists = {"delays": _listed(delays), "losses": _listed(losses), "views": _listed(views)}
    _answer(ctx, "router", settings | lists)


@click.command(
    epilog="""\b
Examples:
  kvbench answer replicas traces/chat.arrow --workers 1..8 --capacity 6k --model Llama-3.1-8B --compute roofline \\
    --router pstack-loadaware --arrivals trace,rate=40 --slo ttft=500ms,tpot=25ms
  kvbench answer replicas trace.arrow --workers 2,4,8 --load-scale 0.5,1,2 --seeds 5 --compute poly --slo ttft=2s \\
    --arrivals trace,jitter=3s --capacity 10k -o replicas"""
)
@click.argument("trace")
@click.option("--workers", "counts", metavar="N..M", help="Numbers of replicas to try, as in 2,4,8.  [default: 1..8]")
@click.option(
    "--load-scale", "scales", metavar="X,…", help="Loads to try: how many times as fast requests come.  [default: 1]"
)
@click.option("--share", metavar="SHARE", help="Of requests that must keep the SLO.  [default: 99%]")
@click.option("--seeds", type=int, metavar="N", help="Replays of each, for 95 % intervals.  [default: 1]")
@cache_options
@router_option
@routing_options()
@tier_options()
@clock_options()
@seed_option
@executor_option
@answer_options("sizes in bytes")
def replicas(ctx: click.Context, /, scales: str | None, **settings: Any) -> None:
    """How many replicas for my SLO?

    The load on more and more workers: the share of requests within --slo, goodput, TTFT by queue, fetch and prefill,
    how busy workers are and which keep up; and the fewest that hold the SLO.
    """
    _answer(ctx, "replicas", settings | {"scales": _listed(scales)})


def _listed(text: str | None) -> list[str] | None:
    """What commas part."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
