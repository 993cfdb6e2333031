"""What ships with kvbench, offered through the same hooks as anybody's parts.

Factories are strings, so this module imports nothing of what it lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import (
    CommandSpec,
    EvictionPolicySpec,
    Param,
    RouterPolicySpec,
    TokenDatabaseSpec,
    TraceFormatSpec,
    WorkloadSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@hookimpl
def kvbench_token_databases() -> Iterator[TokenDatabaseSpec]:
    yield TokenDatabaseSpec(
        "chained",
        "kvbench.tokens.chained:ChainedDatabase",
        "hash each block of tokens with the hash of all before it",
        params=(Param("algorithm", str, "blake3", "hash function", choices=("blake3", "sha256")),),
        source="kvbench semantics 2.2",
        reads=("token_ids",),
    )
    yield TokenDatabaseSpec(
        "ids",
        "kvbench.tokens.ids:IdsDatabase",
        "use the block ids that the trace carries",
        params=(
            Param("kind", str, "file-says", "what an id stands for", choices=("file-says", "prefix", "content")),
            Param(
                "scope", str, "file-says", "where it means the same", choices=("file-says", "session", "file", "global")
            ),
        ),
        source="kvbench semantics 2.3",
        reads=("block_ids",),
    )


@hookimpl
def kvbench_eviction_policies() -> Iterator[EvictionPolicySpec]:
    yield EvictionPolicySpec(
        "fifo", "kvbench.eviction.fifo:Fifo", "evict the block that was stored first", source="folklore"
    )
    yield EvictionPolicySpec(
        "lru",
        "kvbench.eviction.lru:Lru",
        "evict the block whose last use is oldest",
        source="Mattson et al., IBM Systems Journal 9(2), 1970",
    )


@hookimpl
def kvbench_router_policies() -> Iterator[RouterPolicySpec]:
    yield RouterPolicySpec(
        "max-prefix",
        "kvbench.routing.max_prefix:MaxPrefix",
        "the worker that holds the longest prefix of the request",
        params=(
            Param(
                "fallback", str, "random", "who serves a request that nobody holds", choices=("random", "round-robin")
            ),
        ),
        source="kvbench semantics 8.2",
    )
    yield RouterPolicySpec(
        "random", "kvbench.routing.simple:Random", "an even draw for each request", source="folklore"
    )
    yield RouterPolicySpec(
        "round-robin", "kvbench.routing.simple:RoundRobin", "one worker after the other", source="folklore"
    )


@hookimpl
def kvbench_trace_formats() -> Iterator[TraceFormatSpec]:
    yield TraceFormatSpec(
        "mooncake",
        "kvbench.trace.formats.mooncake:MooncakeFormat",
        "JSON lines with timestamp, input_length, output_length, hash_ids",
        source="kvcache-ai/Mooncake, FAST'25 release; extras of AIPerf and Dynamo",
        suffixes=(".jsonl", ".json"),
    )


@hookimpl
def kvbench_workloads() -> Iterator[WorkloadSpec]:
    yield WorkloadSpec(
        "chat",
        "kvbench.trace.synth.chat:make_chat",
        "multi-turn chats that share system prompts",
        params=(
            Param("sessions", int, 200, "number of chats", minimum=1),
            Param("system_prompts", int, 4, "system prompts they share, popular by Zipf's law", minimum=1),
            Param("system_tokens", int, 1024, "tokens of a system prompt", minimum=0),
            Param("turns", float, 5.0, "mean turns of a chat (geometric)", minimum=1),
            Param("user_tokens", float, 120.0, "mean tokens of a question (lognormal)", minimum=1),
            Param("output_tokens", float, 250.0, "mean tokens of an answer (lognormal)", minimum=1),
            Param("think_s", float, 20.0, "mean seconds between an answer and the next question", minimum=0),
            Param("rate", float, 0.5, "chats started per second (Poisson)"),
            Param("block_tokens", int, 64, "tokens of a block", minimum=1),
            Param("ids", str, "block", "what identifies a prompt", choices=("block", "token")),
        ),
        source="kvbench",
    )


@hookimpl
def kvbench_commands() -> Iterator[CommandSpec]:
    yield CommandSpec("replay", "kvbench.cli.replay:replay", "Replay a trace and say what hit, what missed and why.")
    yield CommandSpec("trace", "kvbench.cli.trace:trace", "Import, inspect and make traces.")
    yield CommandSpec("plugins", "kvbench.cli.plugins:plugins", "List all parts and where they come from.")
