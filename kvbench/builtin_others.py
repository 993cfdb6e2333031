"""What ships with kvbench beside policies, tiers and tokens; :mod:`kvbench.builtin` offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.builtin_id_formats import id_formats
from kvbench.builtin_texts import TOKEN_PARAMS, text_formats
from kvbench.hookspecs import hookimpl
from kvbench.specs import CommandSpec, ExecutorSpec, Param, TraceFormatSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

SPACING = (
    Param(
        "rate", float, None, "requests a second, where there are no arrivals", minimum=1e-9, maximum=1e9, optional=True
    ),
    Param(
        "interval_s", float, None, "seconds between requests, instead of rate", minimum=0, maximum=1e9, optional=True
    ),
)
"""Of formats whose files may have no arrivals."""

_TIMES = (
    ("arrival", "arrival, with its unit: s, ms, us, ns, iso or epoch, as in arrival=ts:ms"),
    ("think", "pause before a turn, with its unit: s, ms, us or ns"),
    ("end", "end of a request, with its unit; tells the pause before the next turn"),
    ("duration", "time a request took, with its unit; tells the pause before the next turn"),
)
_PLAIN = (
    ("input", "length of the prompt in tokens"),
    ("output", "length of the answer in tokens"),
    ("ids", "ids of the prompt's blocks"),
    ("tokens", "ids of the prompt's tokens"),
    ("session", "name of the conversation"),
    ("turn", "position in it"),
    ("model", "model asked for"),
    ("adapter", "adapter asked for"),
    ("tenant", "who asks"),
    ("priority", "scheduling priority"),
    ("type", "category of the request"),
    ("request", "name of the request"),
)
COLUMN_MAP = (
    *(Param(name, str, None, f"column: {text}", optional=True) for name, text in (*_TIMES, *_PLAIN)),
    Param("block_tokens", int, 0, "tokens of a block; 0: not known", minimum=0, maximum=2**32 - 1),
    Param("tail_rule", str, "ceil", "ceil: a partial last block has an id", choices=("ceil", "floor")),
    Param("id_kind", str, "prefix", "what an id stands for", choices=("prefix", "content")),
    Param("id_scope", str, "file", "where equal ids mean equal blocks", choices=("file", "session", "global")),
    Param(
        "separator",
        str,
        "blank",
        "between ids in one text; brackets around them do not matter",
        choices=("blank", "comma", "semicolon", "pipe", "colon", "tab"),
    ),
    Param("id_base", str, "auto", "how ids are written; auto: 0x is hex", choices=("auto", "decimal", "hex", "text")),
    Param("delimiter", str, "comma", "of CSV", choices=("comma", "semicolon", "pipe", "tab")),
    Param("header", bool, True, "the first line has names; else columns are 1, 2, 3, …"),
    Param(
        "origin",
        str,
        "auto",
        "arrivals count from the first, from zero, or as they look",
        choices=("auto", "first", "zero"),
    ),
    *SPACING,
)
"""Parameters of the format ``columns``."""


@hookimpl
def kvbench_trace_formats() -> Iterator[TraceFormatSpec]:
    yield TraceFormatSpec(
        "mooncake",
        "kvbench.trace.formats.mooncake:MooncakeFormat",
        "JSON lines with timestamp, input_length, output_length, hash_ids; text_input with a rule for its tokens",
        params=TOKEN_PARAMS,
        source="kvcache-ai/Mooncake, FAST'25 release; extras of AIPerf and Dynamo",
    )
    yield TraceFormatSpec(
        "mooncake-delta",
        "kvbench.trace.formats.mooncake_delta:MooncakeDeltaFormat",
        "the same, but later rows of a session hold the new part of the prompt only; never guessed",
        params=(Param("block_tokens", int, 512, "tokens of the blocks that ids stand for", minimum=1, maximum=1e9),),
        source="ai-dynamo/dynamo --trace-format mooncake-delta; AIPerf's sessions",
    )
    yield from id_formats()
    yield from text_formats()

    yield TraceFormatSpec(
        "azure",
        "kvbench.trace.formats.azure:AzureFormat",
        "CSV with TIMESTAMP, ContextTokens, GeneratedTokens; NumImages in 2025",
        source="Azure/AzurePublicDataset, LLM inference traces of 2023, 2024 and 2025",
    )
    yield TraceFormatSpec(
        "burstgpt",
        "kvbench.trace.formats.burstgpt:BurstGptFormat",
        "CSV with Timestamp, Model, Request tokens, Response tokens; sessions in part 3",
        params=(Param("failed", str, "keep", "requests without an answer, as prefill only", choices=("keep", "drop")),),
        source="HPMLL/BurstGPT, parts 1 to 3",
    )
    yield TraceFormatSpec(
        "vidur",
        "kvbench.trace.formats.vidur:VidurFormat",
        "CSV of lengths, num_prefill_tokens and num_decode_tokens, with arrived_at or without; old names, too",
        params=(
            *SPACING,
            Param("max_tokens", int, 0, "most tokens of prompt and answer; 0: no limit", minimum=0, maximum=2**33),
            Param(
                "too_long", str, "reject", "requests with more: clip shortens the prompt", choices=("reject", "clip")
            ),
        ),
        source="microsoft/vidur, length files and trace replay",
    )
    yield TraceFormatSpec(
        "aibrix",
        "kvbench.trace.formats.aibrix:AibrixFormat",
        "JSON lines of a timestamp and its requests",
        params=(Param("bytes_per_token", float, 0.0, "of prompts without a length; 0: none", minimum=0, maximum=1e6),),
        source="vllm-project/aibrix, benchmark workloads",
    )
    yield TraceFormatSpec(
        "routesim",
        "kvbench.trace.formats.routesim:RouteSimFormat",
        "JSON lines with ts, prompt_tokens, gen_tokens, prefix_hash, prefix_len",
        params=(Param("block_tokens", int, 16, "tokens of a block", minimum=1, maximum=2**32 - 1),),
        source="InfraWhisperer/RouteSim, compact format",
    )
    yield TraceFormatSpec(
        "vllm-timed",
        "kvbench.trace.formats.vllm_timed:VllmTimedFormat",
        "JSON lines with the labels of vLLM's timed_trace; never guessed",
        params=(
            Param("time", str, "timestamp", "label of the time"),
            Param("input", str, "input_length", "label of the prompt's length"),
            Param("output", str, "output_length", "label of the answer's length"),
            Param("ids", str, "hash_ids", "label of the ids"),
            Param("multiplier", float, 1.0, "makes times seconds, 0.001 for ms", minimum=1e-12, maximum=1e9),
            Param("block_tokens", int, 16, "tokens of a block", minimum=1, maximum=2**32 - 1),
        ),
        source="vLLM, vllm bench serve --dataset-name timed_trace",
    )
    yield TraceFormatSpec(
        "sglang-bench",
        "kvbench.trace.formats.vllm_timed:SglangBenchFormat",
        "JSON lines with timestamp, hash_ids, output_length and no length of the prompt",
        params=(
            Param("slowdown", float, 1.0, "stretches times", minimum=1e-9, maximum=1e9),
            Param("block_tokens", int, 512, "tokens of a block", minimum=1, maximum=2**32 - 1),
        ),
        source="SGLang, bench_serving with the Mooncake dataset",
    )
    yield TraceFormatSpec(
        "mlperf-io",
        "kvbench.trace.formats.mlperf_io:MlperfIoFormat",
        "CSV of reads and writes of objects: Timestamp, Operation, Object_Size_Bytes, Tier, Key, Phase",
        params=(
            Param("bytes_per_token", int, 0, "of an object; 0: an object is one block", minimum=0, maximum=1e12),
            Param("block_tokens", int, 16, "tokens of a block, with bytes_per_token", minimum=1, maximum=2**32 - 1),
            Param("operations", str, "all", "which ones are requests", choices=("all", "read", "write")),
        ),
        source="MLPerf Storage, kv_cache_benchmark --io-trace-log",
    )
    yield TraceFormatSpec(
        "lmcache-lookup",
        "kvbench.trace.formats.lmcache_hashes:LookupFormat",
        "JSON lines of lookups with seq_len, chunk_size, chunk_hashes",
        source="LMCache, lookup_hashes_*.jsonl",
    )
    yield TraceFormatSpec(
        "lmcache-chunk-hashes",
        "kvbench.trace.formats.lmcache_hashes:ChunkHashesFormat",
        "JSON lines of lookups with chunk_hashes and no lengths",
        params=(Param("chunk_tokens", int, 256, "tokens of a chunk", minimum=1, maximum=2**32 - 1),),
        source="LMCache, enable_chunk_statistics, chunk_hashes_*.jsonl",
    )
    yield TraceFormatSpec(
        "columns",
        "kvbench.trace.formats.columns:ColumnsFormat",
        "any CSV, JSON lines or Parquet, with a map of columns; never guessed",
        params=COLUMN_MAP,
        source="kvbench",
    )


@hookimpl
def kvbench_executors() -> Iterator[ExecutorSpec]:
    yield ExecutorSpec(
        "local",
        "kvbench.sweeps.local:LocalExecutor",
        "processes of this machine, each of which maps the trace into memory",
        params=(
            Param("processes", int, 0, "0: as many as there are cores", minimum=0, maximum=4096),
            Param("retries", int, 2, "how often a cell is tried again whose process died", minimum=0, maximum=100),
        ),
        source="kvbench",
    )


@hookimpl
def kvbench_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(
        "answer", "kvbench.cli.answer:answer", "Answer a question about a trace: what to buy, set or leave."
    )
    yield CommandSpec(
        "compare", "kvbench.cli.compare:compare", "Compare runs with each other, or with what was measured."
    )
    yield CommandSpec(
        "completion", "kvbench.cli.completion:completion", "Print what a shell reads to complete commands."
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
    yield CommandSpec("plot", "kvbench.cli.report:plot", "Draw one figure of runs, curves and sweeps.")
    yield CommandSpec("presets", "kvbench.cli.presets:presets", "List named systems whose settings a replay can take.")
    yield CommandSpec("replay", "kvbench.cli.replay:replay", "Replay a trace and say what hit, what missed and why.")
    yield CommandSpec("report", "kvbench.cli.report:report", "Make one page of runs, curves and sweeps, with charts.")
    yield CommandSpec(
        "rollup", "kvbench.cli.rollup:rollup", "Add up the requests of a replay by session, by worker or over time."
    )
    yield CommandSpec("sweep", "kvbench.cli.sweep:sweep", "Replay a trace under many settings, and say what each gave.")
    yield CommandSpec("trace", "kvbench.cli.trace:trace", "Import, export, inspect, select, make and anonymize traces.")
    yield CommandSpec("plugins", "kvbench.cli.plugins:plugins", "List all parts and where they come from.")
