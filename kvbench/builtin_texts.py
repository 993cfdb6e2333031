"""The formats of text that ship with kvbench; :mod:`kvbench.builtin_others` offers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.specs import Param, TraceFormatSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN_PARAMS = (
    Param(
        "tokenizer",
        str,
        None,
        "tokenizer.json, its folder, or a Hugging Face name; needs kvbench[text]",
        optional=True,
    ),
    Param(
        "bytes_per_token",
        int,
        None,
        "without a tokenizer: bytes of text that make a token, whose id is their hash; 4 where no rule is given",
        minimum=1,
        maximum=4096,
        optional=True,
    ),
    Param(
        "characters_per_token",
        int,
        None,
        "the same with characters instead of bytes",
        minimum=1,
        maximum=4096,
        optional=True,
    ),
)
"""How text becomes token ids; at most one of them may be given."""

_TURN_PARAMS = (
    Param(
        "conversation_s",
        float,
        1.0,
        "seconds between the first turns of two conversations, for the files have no times",
        minimum=0,
        maximum=1e7,
    ),
    Param("turn_s", float, 30.0, "seconds between two turns of a conversation", minimum=0, maximum=1e7),
)

_TIME_UNIT = Param("time_unit", str, "s", "of times that are numbers", choices=("s", "ms", "us", "ns"))


def text_formats() -> Iterator[TraceFormatSpec]:
    """Formats whose rows hold text, which becomes token ids."""
    yield TraceFormatSpec(
        "lmcache-agent",
        "kvbench.trace.formats.lmcache_agent:LMCacheAgentFormat",
        "JSON lines with the text of prompt and answer (input, output), timestamp in µs, session_id",
        params=TOKEN_PARAMS,
        source="LMCache agent traces (miniswe, magagent, taubench); sammshen/lmcache-agentic-traces",
    )
    yield TraceFormatSpec(
        "openai-chat",
        "kvbench.trace.formats.openai_chat:OpenAIChatFormat",
        "JSON lines of chat requests with messages and their responses, as gateways log them",
        params=(
            *TOKEN_PARAMS,
            _TIME_UNIT,
        ),
        source="OpenAI chat completions API; batch files and logs of gateways that speak it",
    )
    yield TraceFormatSpec(
        "sharegpt",
        "kvbench.trace.formats.sharegpt:ShareGPTFormat",
        "conversations with from and value, as a JSON list or lines; a request for each answer",
        params=(*TOKEN_PARAMS, *_TURN_PARAMS),
        source="ShareGPT dumps",
    )
    yield TraceFormatSpec(
        "wildchat",
        "kvbench.trace.formats.wildchat:WildChatFormat",
        "conversations with conversation_hash, timestamp and messages, as a JSON list, lines or Parquet",
        params=(*TOKEN_PARAMS, _TURN_PARAMS[1], _TIME_UNIT),
        source="WildChat-1M, allenai",
    )
    yield TraceFormatSpec(
        "otel",
        "kvbench.trace.formats.otel:OtelFormat",
        "OpenTelemetry GenAI spans with the text of messages; who waits for whom is inferred",
        params=(
            *TOKEN_PARAMS,
            Param(
                "max_gap_ms",
                float,
                15_000.0,
                "longest pause between a call and the one that it waits for, in ms",
                minimum=0,
                maximum=1e12,
            ),
        ),
        source="OpenTelemetry GenAI semantic conventions; otel_trace_replay of inference-perf",
    )
