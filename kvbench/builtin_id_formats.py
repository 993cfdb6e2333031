"""Trace formats whose rows have ids, objects, or counts to make ids from; part of :mod:`kvbench.builtin_others`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.specs import Param, TraceFormatSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBCACHESIM = "1a1a11a/libCacheSim"
SIZES = Param("sizes", str, "bytes", "an object has a token for each byte, or one", choices=("bytes", "ignore"))
IDS = Param("ids", str, "number", "what ids are", choices=("number", "text"))


def id_formats() -> Iterator[TraceFormatSpec]:
    """All of them."""
    yield from _requests()
    yield from _libcachesim_binary()
    yield from _libcachesim_text()


def _requests() -> Iterator[TraceFormatSpec]:
    """Requests to language models."""
    yield TraceFormatSpec(
        "bailian",
        "kvbench.trace.formats.bailian:BailianFormat",
        "Qwen usage traces of Alibaba Bailian: JSON lines with chat_id, timestamp (s), hash_ids of 16 tokens",
        source="alibaba-edu/qwen-bailian-usagetraces-anon, ATC'25",
    )
    yield TraceFormatSpec(
        "dynamo-requests",
        "kvbench.trace.formats.dynamo_requests:DynamoRequestsFormat",
        "Dynamo's request trace (DYN_REQUEST_TRACE): JSON lines of schema dynamo.request.trace.v1",
        source="ai-dynamo/dynamo, request trace reference, 1.3 to 1.7",
    )
    yield TraceFormatSpec(
        "weka",
        "kvbench.trace.formats.weka:WekaFormat",
        "agent conversations as JSON, one a file or a line, ids also as runs; kv-cache-tester, AgentX",
        params=(
            Param(
                "starts",
                str,
                "together",
                "conversations start all at 0, or each when the one before has ended",
                choices=("together", "in-turn"),
            ),
            Param("subagents", str, "keep", "requests of sub-agents", choices=("keep", "drop")),
            Param(
                "subagent_time",
                str,
                "auto",
                "what their times count from: the conversation's start, the sub-agent's entry, or its launch "
                "(entry less duration); auto: conversation or launch, whichever the times fit",
                choices=("auto", "conversation", "marker", "launch"),
            ),
        ),
        source="callanjfox/kv-cache-tester; semianalysisai/cc-traces-weka",
    )
    yield TraceFormatSpec(
        "tracelab",
        "kvbench.trace.formats.tracelab:TraceLabFormat",
        "rounds of agent sessions as token counts, replay CSV or round JSON lines; block ids are made",
        params=(Param("block_tokens", int, 16, "tokens of the blocks that are made", minimum=1, maximum=2**32 - 1),),
        source="uw-syfi/TraceLab",
    )
    yield TraceFormatSpec(
        "kvcache-simulator",
        "kvbench.trace.formats.kvcache_simulator:KvcacheSimulatorFormat",
        "JSON lines with block_size, hash_ids, input_length and no times",
        source="kvcache-simulator of KVCache.AI",
    )


def _libcachesim_binary() -> Iterator[TraceFormatSpec]:
    """Objects as requests of one block."""
    module = "kvbench.trace.formats.libcachesim_binary"
    yield TraceFormatSpec(
        "libcachesim-oracle",
        f"{module}:OracleGeneralFormat",
        "oracleGeneral: 24-byte records of time (s), object, size, next access",
        params=(SIZES,),
        source=LIBCACHESIM,
    )
    yield TraceFormatSpec(
        "libcachesim-oracle-opns",
        f"{module}:OracleGeneralOpNsFormat",
        "oracleGeneralOpNS: 27-byte records, with operation (type) and namespace (tenant)",
        params=(SIZES,),
        source=LIBCACHESIM,
    )
    yield TraceFormatSpec(
        "libcachesim-vscsi",
        f"{module}:VscsiFormat",
        "vscsi: 32-byte records of accesses to a virtual disk, times in µs",
        params=(SIZES,),
        source=LIBCACHESIM,
    )


def _libcachesim_text() -> Iterator[TraceFormatSpec]:
    """Objects as requests of one block."""
    module = "kvbench.trace.formats.libcachesim_text"
    yield TraceFormatSpec(
        "libcachesim-csv",
        f"{module}:LibCacheSimCsvFormat",
        "a table with a row an access; columns by number from 1, 0: there is none",
        params=(
            Param("time_col", int, 2, "column of the time", minimum=0, maximum=1e4),
            Param("id_col", int, 5, "column of the object's id", minimum=1, maximum=1e4),
            Param("size_col", int, 4, "column of the object's size in bytes", minimum=0, maximum=1e4),
            Param("time_unit", str, "s", "unit of the time", choices=("s", "ms", "us", "ns")),
            Param(
                "delimiter",
                str,
                "comma",
                "between columns",
                choices=("comma", "semicolon", "tab", "space", "bar"),
            ),
            Param("header", bool, True, "whether the first line has names"),
            IDS,
            SIZES,
        ),
        source=LIBCACHESIM,
    )
    yield TraceFormatSpec(
        "libcachesim-txt",
        f"{module}:LibCacheSimTextFormat",
        "one object id a line",
        params=(IDS,),
        source=LIBCACHESIM,
    )
