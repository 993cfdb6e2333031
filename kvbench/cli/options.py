"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvbench.cli.parts import PartType
from kvbench.specs import ComputeModelSpec, TokenDatabaseSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")


on_error_option = click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    help="A bad row ends the run, or is left out and counted.  [default: fail]",
)


def block_options(uses_of_bytes: str | None) -> Callable[[F], F]:
    """How prompts become blocks, and which of those are cached.

    ``uses_of_bytes``  what the command does with ``--block-bytes``, for its help; None: it has no such option.
    """
    options = (
        click.option(
            "--tokens",
            type=PartType(TokenDatabaseSpec),
            help="How prompts become keys.  [default: by the trace's columns]",
        ),
        click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block, instead of what the file says."),
        *(
            [click.option("--block-bytes", metavar="SIZE", help=f"Bytes of a full block, for {uses_of_bytes}.")]
            if uses_of_bytes is not None
            else []
        ),
        click.option(
            "--tail-rule",
            type=click.Choice(["ceil", "floor"]),
            help="Whether a partial last block has an id (ceil) or none.",
        ),
        click.option(
            "--id-kind",
            type=click.Choice(["prefix", "content"]),
            help="What a block id stands for, instead of what the file says: its block and all before it, or its own "
            "tokens.",
        ),
        click.option(
            "--id-scope",
            type=click.Choice(["file", "session", "global"]),
            help="Where an id means the same, instead of what the file says.",
        ),
        click.option(
            "--shared-blocks",
            type=int,
            metavar="N",
            help="Leading blocks of each prompt that all tenants share; the rest is each tenant's own.  [default: 0]",
        ),
        click.option(
            "--tails",
            type=click.Choice(["drop", "keep"]),
            help="Cache full blocks only, or partial last ones, too.  [default: drop]",
        ),
    )

    return all_of(options)


def routing_options() -> Callable[[F], F]:
    """What routers know, and how old it is. A lag is a number of requests or a time (50ms, 30s)."""
    options = (
        click.option(
            "--routers",
            type=int,
            metavar="N",
            help="Routers in front of the workers, each with a view of its own; requests go to them in turn.  "
            "[default: 1]",
        ),
        click.option(
            "--index",
            metavar="MODE,KEY=VALUE,…",
            help="How a router knows who holds what: by events, approximate (its own decisions, ttl=LAG or "
            "capacity=BLOCKS of a worker), predictive (both), or oracle. copies=count: a worker may hold a block "
            "several times.  [default: events]",
        ),
        click.option(
            "--event-channel",
            metavar="KEY=VALUE,…",
            help="How events reach the index, as in coalesce=30s,batch=64,cycle=30s. Keys: coalesce, delay, cycle "
            "(lags: requests, or a time like 50ms), batch (events read in a cycle), loss, duplication, reorder (shares "
            "of messages).  [default: at once]",
        ),
        click.option(
            "--load",
            metavar="KEY=VALUE,…",
            help="What routers know of load: window (lag for which a request is in flight), prefill_share of it, "
            "period (lag between publications), sync (lag after which routers hear of each other's requests).  "
            "[default: window of 8 requests a worker, published at once, no sync]",
        ),
    )
    return all_of(options)


def model_options() -> Callable[[F], F]:
    """Whose KV it is: says how large a block is."""
    return all_of(
        (
            click.option("--model", metavar="MODEL", help="Preset or config.json that says how large KV is."),
            click.option("--models", metavar="FILE", help="More model presets."),
            click.option("--kv-dtype", metavar="DTYPE", help="Of the stored KV, instead of the model's."),
            click.option("--tp", type=int, metavar="N", help="Tensor-parallel ranks of a worker.  [default: 1]"),
            click.option(
                "--save-only-first-rank",
                is_flag=True,
                default=None,
                help="Ranks that hold the same KV (MLA) store it once.",
            ),
        )
    )


def tier_options() -> Callable[[F], F]:
    """The stack of tiers, and the model whose KV it holds."""
    options = (
        click.option(
            "--tier",
            "tiers",
            multiple=True,
            metavar="NAME,KEY=VALUE,…",
            help="A tier instead of --capacity and --policy, the fastest first, as in cpu,capacity=64GiB,policy=lru. "
            "Keys: capacity, policy, scope (rank, worker, host, cluster), device, chunk, write (through, back, none), "
            "promotion (copy, move, none, temporary), admission, touch_on (request, hit, lookup, never), order, "
            "spare_own, fit (leading, all), partial (free, first, in-turn), high, low, ratio, period_s, "
            "quotas.TENANT, probes; in timed replay sharing (fair, fifo), path (links, as in nic+pcie), transfer "
            "(pipelined, serial). policy.KEY=VALUE sets a policy's parameter.",
        ),
        click.option(
            "--preset",
            metavar="NAME",
            help="A named system's settings (kvbench presets lists them); other options override them.",
        ),
        click.option(
            "--placement",
            type=click.Choice(["inclusive", "exclusive", "spill"]),
            help="inclusive: tiers write through, hits are copied up. exclusive: hits move up, evictions move down. "
            "spill: what is computed goes to the first tier with room.  [default: inclusive]",
        ),
        click.option(
            "--walk",
            type=click.Choice(["any", "once"]),
            help="any: each block from the fastest tier that has it; once: each tier is visited once, in order.  "
            "[default: any]",
        ),
        click.option("--workers-per-host", type=int, metavar="N", help="Workers that share a tier of scope host."),
        model_options(),
        click.option("--devices", metavar="FILE", help="More device presets."),
        click.option(
            "--prefill-tokens-per-s",
            type=float,
            metavar="N",
            help="Of a worker: says from how many tokens on loading from a tier beats recomputing.",
        ),
        click.option("--faults", metavar="FILE", help="A fault plan (TOML): what fails in which tier, and when."),
        click.option("--retries", type=int, metavar="N", help="Of a failing get or put.  [default: 0]"),
    )
    return all_of(options)


def clock_options(last: str = "--link") -> Callable[[F], F]:
    """Timed replay: what takes time, when requests arrive, what counts. A time has its unit (500ms, 30s).

    ``last``  the last of these options in the help of the command.
    """
    options = (
        click.option(
            "--compute",
            type=PartType(ComputeModelSpec),
            help=f"Compute model; makes this a timed replay. The options from here to {last} go with it.",
        ),
        click.option(
            "--worker",
            metavar="KEY=VALUE,…",
            help="How a worker serves. Keys: batch_tokens (8192), sequences (256), fetches (8; 0: any number), "
            "chunked (true), share (false), load (always, cheaper), step_overhead, rebuild (times, 0s), store (async, "
            "blocking), preempt (latest), decode (true).",
        ),
        click.option(
            "--arrivals",
            metavar="MODE,KEY=VALUE,…",
            help="When requests arrive: as the trace says; session: the next turn when the one before has ended and "
            "its pause is over (think=TIME where the trace has none); concurrency,concurrency=N: N in flight. rate=2 "
            "halves all gaps; jitter=3s moves each arrival later by a random time below that.  [default: trace]",
        ),
        click.option(
            "--slo", metavar="KEY=TIME,…", help="Limits of goodput: ttft, tpot, e2e, as in ttft=500ms,tpot=50ms."
        ),
        click.option(
            "--stop",
            metavar="KEY=VALUE,…",
            help="End early: time (of the simulated clock), rows, converged (when the 95 % interval of the mean TTFT "
            "is narrower than this share of it), stall_steps (steps without a token: give up).",
        ),
        click.option(
            "--window",
            metavar="KEY=VALUE,…",
            help="Which requests count in figures: warmup (rows, a time, or a share as in 10%, left out at the start), "
            "start, end (times of arrival).  [default: all]",
        ),
        click.option(
            "--link",
            "links",
            multiple=True,
            metavar="NAME,KEY=VALUE,…",
            help="A link that transfers pass beside the tiers' devices, as in nic,read_gb_per_s=25; a tier's path "
            "names it. Keys: read_gb_per_s, write_gb_per_s, read_latency_us, write_latency_us, concurrent_operations, "
            "scope (worker, host, cluster), sharing (fair, fifo).",
        ),
    )
    return all_of(options)


def serving_options(last: str = "--sample") -> Callable[[F], F]:
    """The options of the clock, and seeds to repeat a run with; ``last`` as of :func:`clock_options`."""
    options = (
        clock_options(last),
        click.option(
            "--seeds",
            type=int,
            metavar="N",
            help="Replay with N seeds, from --seed on, and give mean and 95 % confidence interval of each figure.  "
            "[default: 1]",
        ),
    )
    return all_of(options)


def cache_options(belady_default: str) -> Callable[[F], F]:
    """How a cache serves requests, and what is counted.

    ``belady_default``  of ``--belady``, with what is to be said of it.
    """
    options = (
        click.option(
            "--order",
            type=click.Choice(["tail-first", "head-first", "access"]),
            help="How a request's blocks are swept; access is block by block, as a plain cache simulator.  "
            "[default: tail-first]",
        ),
        click.option(
            "--recompute",
            type=click.Choice(["none", "token", "block"]),
            help="What of a fully cached prompt is computed again and counts as no hit: nothing, its last token or its "
            "last block, as vLLM does.  [default: none]",
        ),
        click.option(
            "--store-output",
            is_flag=True,
            default=None,
            help="Store the blocks that an answer fills, too; needs output_tokens and output_block_ids or "
            "output_token_ids.",
        ),
        click.option(
            "--belady",
            type=click.Choice(["auto", "on", "off"]),
            help="The Belady bound beside the result; it reads the trace once more. auto: where ids are dense and the "
            f"trace can be read twice.  {belady_default}",
        ),
        click.option(
            "--seen",
            type=click.Choice(["exact", "off"]),
            help="The set of keys ever seen: it tells first uses from evictions and gives the infinite bound; off "
            "keeps memory flat.  [default: exact]",
        ),
        click.option("--seed", type=int, metavar="N", help="Of every random choice.  [default: 0]"),
        on_error_option,
    )
    return all_of(options)


def all_of(options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """One decorator for several, which help shows in their order."""

    def decorate(command: F) -> F:
        for option in reversed(options):  # as a stack of decorators is applied
            command = option(command)
        return command

    return decorate
