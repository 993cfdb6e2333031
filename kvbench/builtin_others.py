"""What ships with kvbench beside policies, tiers and tokens; :mod:`kvbench.builtin` offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import CommandSpec, Param, TraceFormatSpec, WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Iterator


@hookimpl
def kvbench_trace_formats() -> Iterator[TraceFormatSpec]:
    yield TraceFormatSpec(
        "mooncake",
        "kvbench.trace.formats.mooncake:MooncakeFormat",
        "JSON lines with timestamp, input_length, output_length, hash_ids",
        source="kvcache-ai/Mooncake, FAST'25 release; extras of AIPerf and Dynamo",
    )


@hookimpl
def kvbench_workloads() -> Iterator[WorkloadSpec]:
    yield WorkloadSpec(
        "chat",
        "kvbench.trace.synth.chat:make_chat",
        "multi-turn chats that share system prompts",
        params=(
            Param("sessions", int, 200, "number of chats", minimum=1, maximum=1e7),
            Param("system_prompts", int, 4, "system prompts they share, popular by Zipf's law", minimum=1, maximum=1e4),
            Param("system_tokens", int, 1024, "tokens of a system prompt", minimum=0, maximum=1e7),
            Param("turns", float, 5.0, "mean turns of a chat (geometric)", minimum=1, maximum=1e4),
            Param("user_tokens", float, 120.0, "mean tokens of a question (lognormal)", minimum=1, maximum=1e6),
            Param("output_tokens", float, 250.0, "mean tokens of an answer (lognormal)", minimum=1, maximum=1e6),
            Param(
                "think_s", float, 20.0, "mean seconds between an answer and the next question", minimum=0, maximum=1e7
            ),
            Param("rate", float, 0.5, "chats started per second (Poisson)", minimum=1e-6, maximum=1e9),
            Param("block_tokens", int, 64, "tokens of a block", minimum=1, maximum=2**32 - 1),
            Param("ids", str, "block", "what identifies a prompt", choices=("block", "token")),
        ),
        source="kvbench",
    )
    yield WorkloadSpec(
        "rag",
        "kvbench.trace.synth.rag:make_rag",
        "questions about documents, k of N each; with separator_tokens=2, split at segment,separator=32000 32001",
        params=(
            Param("requests", int, 500, "number of questions", minimum=1, maximum=1e8),
            Param("num_documents", int, 10, "documents there are, equally popular", minimum=1, maximum=1e7),
            Param("docs_per_request", int, 4, "different documents in a prompt", minimum=0, maximum=1e4),
            Param("document_tokens", int, 2048, "tokens of a document", minimum=1, maximum=1e7),
            Param("system_tokens", int, 1024, "tokens of the system prompt of all", minimum=0, maximum=1e7),
            Param("question_tokens", float, 60.0, "mean tokens of a question (lognormal)", minimum=1, maximum=1e6),
            Param("output_tokens", float, 128.0, "mean tokens of an answer (lognormal)", minimum=1, maximum=1e6),
            Param("rate", float, 1.0, "requests per second (Poisson)", minimum=1e-6, maximum=1e9),
            Param("order", str, "sorted", "of the documents in a prompt", choices=("sorted", "shuffled")),
            Param(
                "separator_tokens",
                int,
                0,
                "tokens between system prompt, documents and question, ids 32000, 32001, … (nowhere else)",
                minimum=0,
                maximum=1e4,
            ),
            Param("block_tokens", int, 64, "tokens of a block", minimum=1, maximum=2**32 - 1),
            Param("ids", str, "block", "what identifies a prompt", choices=("block", "token")),
        ),
        source="RAG workload of IBM/opal-sim",
    )


@hookimpl
def kvbench_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(
        "compare", "kvbench.cli.compare:compare", "Compare runs with each other, or with what was measured."
    )
    yield CommandSpec(
        "curve", "kvbench.cli.curve:curve", "Show the exact LRU hit rate at every capacity, found in one pass."
    )
    yield CommandSpec("events", "kvbench.cli.events:events", "Read, write and fold logs of what was stored where.")
    yield CommandSpec("fit", "kvbench.cli.fit:fit", "Fit a compute model or a device to what was measured.")
    yield CommandSpec(
        "kv-size", "kvbench.cli.kvsize:kv_size", "Say how many bytes a model's KV takes, and what a capacity holds."
    )
    yield CommandSpec("keys", "kvbench.cli.keys:keys", "Compare the keys that two systems give to one prompt.")
    yield CommandSpec("presets", "kvbench.cli.presets:presets", "List named systems whose settings a replay can take.")
    yield CommandSpec("replay", "kvbench.cli.replay:replay", "Replay a trace and say what hit, what missed and why.")
    yield CommandSpec("trace", "kvbench.cli.trace:trace", "Import, inspect and make traces.")
    yield CommandSpec("plugins", "kvbench.cli.plugins:plugins", "List all parts and where they come from.")
