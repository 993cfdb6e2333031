"""Small files of foreign formats, as those who write them write them, and how each is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvbench.builtin_others import kvbench_trace_formats

if TYPE_CHECKING:
    from kvbench.trace.formats import TraceFormat


def jsonl(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


HASHES = ["0x" + f"{number:02x}" * 32 for number in (7, 8, 9)]
LOOKUP = {"timestamp": 1.7e9, "request_id": "a", "model_name": "m", "chunk_size": 256, "seq_len": 600}
MLPERF = """\
Timestamp,Operation,Object_Size_Bytes,Tier,Key,Phase
1760000000.000001,Write,1048576,Tier-0,user-1,Prefill
1760000000.250000,Read,1048576,Tier-0,user-1,Decode
1760000000.500000,Write,1048576,Tier-1,user-1,Evict
1760000001.000000,Read,2097152,Tier-2,user-2,Decode
"""
BURST = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,API log
118,GPT-4,417,276,693,Conversation log
"""
SESSIONS = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
0,s-1,4.0,GPT-4,100,10,110,Conversation log
6,s-1,1.5,GPT-4,150,20,170,Conversation log
7,s-2,,GPT-4,90,5,95,Conversation log
7.5,s-1,1,GPT-4,200,1,201,Conversation log
9,,2,ChatGPT,30,1,31,API log
"""

FILES: dict[str, tuple[str, bytes]] = {
    "azure 2023": (
        "azure",
        b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
        b"2023-11-16 18:17:04.0319600,3180,8",
    ),
    "azure 2024": (
        "azure",
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
        b"2024-05-10 00:00:01+00:00,2399,6\n",
    ),
    "azure 2025": ("azure", b"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-02 03:04:05.5,2,4808,10\n"),
    "burstgpt": ("burstgpt", BURST.encode()),
    "burstgpt part 3": ("burstgpt", SESSIONS.encode()),
    "vidur lengths": (
        "vidur",
        b"num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n2015,156,2171,12.9\n",
    ),
    "vidur replay": ("vidur", b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,100,5\n1.5,200,7\n"),
    "vidur old": ("vidur", b"Date,Time,PromptTokenCount,CompletionTokenCount\n2023-07-01,10:00:01.5,100,5\n"),
    "aibrix": (
        "aibrix",
        jsonl(
            {"timestamp": 0, "requests": [{"prompt": "hi", "prompt_length": 1, "output_length": None}]},
            {"timestamp": 30, "requests": [{"Prompt Length": 9, "Output Length": 3, "session_id": 4}] * 2},
        ),
    ),
    "routesim": (
        "routesim",
        jsonl(
            {"ts": 0, "prompt_tokens": 100, "gen_tokens": 5, "prefix_hash": "p", "prefix_len": 40},
            {"ts": 2, "prompt_tokens": 70, "gen_tokens": 5, "prefix_hash": "p", "prefix_len": 64, "lora_adapter": "l"},
            {"ts": 3, "prompt_tokens": 33, "gen_tokens": 5, "conversation_id": "c", "priority": 2},
        ),
    ),
    "sglang-bench": ("sglang-bench", jsonl({"timestamp": 27482, "hash_ids": [0, 1], "output_length": 52})),
    "mlperf-io": ("mlperf-io", MLPERF.encode()),
    "lmcache-lookup": (
        "lmcache-lookup",
        jsonl(
            LOOKUP | {"dtypes": ["bfloat16"], "shapes": [[2, 32, 256, 1024]], "chunk_hashes": HASHES[:2]},
            LOOKUP | {"timestamp": 1700000000.25, "chunk_hashes": [HASHES[0], -1]},
        ),
    ),
    "lmcache-chunk-hashes": (
        "lmcache-chunk-hashes",
        jsonl({"timestamp": 1.5, "lookup_id": "l", "chunk_hashes": ["0x7", "ffffffffffffffff"]}).replace(
            b"ffffffffffffffff", b"0xffffffffffffffff"
        ),
    ),
    "mooncake": (
        "mooncake",
        jsonl({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}),
    ),
}
"""What → the format that reads it, and its bytes."""


def make(choice: str, **params: object) -> TraceFormat:
    """The format called ``choice``, made as the command line makes it."""
    spec = next(spec for spec in kvbench_trace_formats() if spec.name == choice)
    return spec.load()(**spec.parse_params(params))
