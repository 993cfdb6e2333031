"""``kvbench answer``: the questions about the cache itself."""

from __future__ import annotations

from typing import Any

import click

from kvbench.cli.answer import answer_options, executor_option, give_answer
from kvbench.cli.options import model_options


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
    help="Sizes of a host to choose from (256GiB), or blocks, or tokens (2Mtok).  [default: powers of two, and half as "
    "much again]",
)
@click.option("--workers", type=int, metavar="N", help="Workers of the cluster.  [default: 1]")
@click.option("--workers-per-host", type=int, metavar="N", help="Workers of a host.  [default: 1]")
@click.option(
    "--worth", metavar="SHARE", help="Of tokens: what doubling must add for it to be worth it.  [default: 1%]"
)
@model_options()
@executor_option
@answer_options("sizes in bytes")
def dram(ctx: click.Context, /, **settings: Any) -> None:
    """How much DRAM should I buy for TRACE?

    The exact LRU hit rate at every size in one pass, between what knowing the future and an infinite cache would give;
    what each GiB adds; how old blocks get; and the smallest size from which on doubling is not worth it.
    """
    give_answer(ctx, "dram", settings)


@click.command(
    "block-size",
    epilog="""\b
Examples:
  kvbench answer block-size prompts.arrow --block-sizes 16,64,256
  kvbench answer block-size trace.arrow --model Llama-3.1-70B --tp 8 --capacity 2TiB -o block-size""",
)
@click.argument("trace")
@click.option(
    "--block-sizes",
    metavar="N,…",
    help="Tokens of a block; a trace of block ids tells of multiples of its own.  [default: the usual ones]",
)
@click.option(
    "--capacity", metavar="SIZE", help="Of the cache, in bytes or tokens (2Mtok).  [default: it holds everything]"
)
@click.option(
    "--worth", metavar="SHARE", help="Of tokens: what larger blocks may hit less than the best.  [default: 1%]"
)
@model_options()
@executor_option
@answer_options("sizes in bytes")
def block_size(ctx: click.Context, /, **settings: Any) -> None:
    """Which block size suits TRACE?

    What blocks of each size hit, what is lost because only whole blocks count, how many entries an index of them has,
    how many events it hears, and the bytes of a transfer; and the largest size that costs next to nothing.
    """
    if settings["block_sizes"] is not None:
        from kvbench.units import parse_counts

        settings["block_sizes"] = parse_counts(settings["block_sizes"])
    give_answer(ctx, "block-size", settings)


@click.command(
    epilog="""\b
Examples:
  kvbench answer layout trace.arrow --model Llama-3.1-70B --model DeepSeek-V3 --capacity 1TiB
  kvbench answer layout trace.arrow --model Qwen3-32B --kv-dtype bf16 --kv-dtype fp8 --tp 1 --tp 2 --tp 4"""
)
@click.argument("trace")
@click.option(
    "--model", multiple=True, metavar="MODEL", help="Preset or config.json; may be given several times.", required=True
)
@click.option("--models", metavar="FILE", help="More model presets.")
@click.option(
    "--kv-dtype",
    multiple=True,
    metavar="DTYPE",
    help="Of the stored KV; may be given several times.  [default: the model's, and fp8]",
)
@click.option(
    "--tp",
    type=int,
    multiple=True,
    metavar="N",
    help="Tensor-parallel ranks of a worker; may be given several times.  [default: 1 and 8]",
)
@click.option("--capacity", metavar="SIZE,…", help="Of a host with one worker, as in 256GiB,1TiB.  [default: 1TiB]")
@click.option(
    "--context-tokens",
    type=int,
    metavar="N",
    help="Of a full context.  [default: the longest prompt of TRACE and its answer]",
)
@answer_options(None)
def layout(ctx: click.Context, /, **settings: Any) -> None:
    """Which KV layout suits TRACE?

    For each model, dtype and tensor-parallel width, and for latents (MLA) stored by each rank or once: bytes of a token
    on a rank and in all, fixed bytes of a request, tokens and full contexts that a capacity holds, and what of the
    trace that then hits.
    """
    give_answer(ctx, "layout", settings)


@click.command(
    epilog="""\b
Examples:
  kvbench answer isolation trace.arrow --capacity 10k
  kvbench answer isolation trace.arrow --capacity 512GiB --model Llama-3.1-70B --shared-blocks 4
  kvbench answer isolation trace.arrow --capacity 10k --quota gold=6k --quota silver=3k"""
)
@click.argument("trace")
@click.option(
    "--capacity",
    metavar="SIZE",
    help="Of the one cache: blocks, bytes, or a share of the distinct blocks.  [default: 10%]",
)
@click.option(
    "--quota",
    multiple=True,
    metavar="TENANT=SIZE",
    help="Room of a tenant; may be given several times.  [default: an even part for each]",
)
@model_options()
@executor_option
@answer_options("sizes in bytes")
def isolation(ctx: click.Context, /, **settings: Any) -> None:
    """What do isolation and sharing cost in TRACE, which names tenants?

    Hits of each tenant, LoRA adapter and model in one cache with tenants apart, with their first blocks shared
    (--shared-blocks, or several numbers), with all shared, and with quotas; whose blocks are evicted for whom; and how
    much room each holds.
    """
    give_answer(ctx, "isolation", settings)
