"""``kvbench answer``: the questions about the cache itself."""

from __future__ import annotations

from typing import Any

import click

from kvbench.cli.answer import answer_options, give_answer, model_options


@click.command(
    epilog="""\b
Examples:
  kvbench answer reuse traces/chat.arrow
  kvbench answer reuse trace.arrow --tails keep -o reuse --png"""
)
@click.argument("trace")
@answer_options(None)
def reuse(ctx: click.Context, /, **settings: Any) -> None:
    """Is there any reuse to win in TRACE?

    What a cache that holds everything would hit, by token, block and request; whose blocks those are (an opening that
    many share, the same session, another); how soon they are used again; what is used once; and why the rest misses.
    """
    give_answer(ctx, "reuse", settings)


@click.command(
    epilog="""\b
Examples:
  kvbench answer dram trace.arrow --model Llama-3.1-70B --tp 8 --workers 8
  kvbench answer dram trace.arrow --block-bytes 2MiB --capacity 256GiB,512GiB,1TiB
  kvbench answer dram trace.arrow --model Qwen3-32B --tp 2 --workers 16 --workers-per-host 4 -o dram"""
)
@click.argument("trace")
@click.option(
    "--capacity",
    metavar="SIZE,…",
    help="Sizes of a host to choose from (256GiB), or blocks.  [default: powers of two, and half as much again]",
)
@click.option("--workers", type=int, metavar="N", help="Workers of the cluster.  [default: 1]")
@click.option("--workers-per-host", type=int, metavar="N", help="Workers of a host.  [default: 1]")
@click.option(
    "--worth", metavar="SHARE", help="Of tokens: what doubling must add for it to be worth it.  [default: 1%]"
)
@model_options()
@answer_options("sizes in bytes")
def dram(ctx: click.Context, /, **settings: Any) -> None:
    """How much DRAM should I buy for TRACE?

    The exact LRU hit rate at every size in one pass, between what knowing the future and an infinite cache would give;
    what each GiB adds; how old blocks get; and the smallest size from which on doubling is not worth it.
    """
    give_answer(ctx, "dram", settings, own=("capacity", "workers", "workers_per_host", "worth"))
