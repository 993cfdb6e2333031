"""What ships with kvbench beside policies, tiers and tokens; :mod:`kvbench.builtin` offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import CommandSpec, TraceFormatSpec

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
def kvbench_commands() -> Iterator[CommandSpec]:
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
    yield CommandSpec("trace", "kvbench.cli.trace:trace", "Import, inspect, select and make traces.")
    yield CommandSpec("plugins", "kvbench.cli.plugins:plugins", "List all parts and where they come from.")
