"""llm-d's study of routers at 73 % of the KV memory (routers-and-timing.md 6.C), as a trace and four replays.

    python tests/llmd_study.py study.arrow                    write the trace
    python tests/llmd_study.py study.arrow --output-tokens 430

Published: 8 pods of Qwen3-32B with room for 307,328 tokens each; 150 groups of 5 prompts, 6,000 tokens that a group
shares, 1,200 of each prompt's own, answers of 1,000; Poisson arrivals in stages, the first of which asks for each
prompt once. Source: llm-d/llm-d-kv-cache, benchmarking/73-capacity/README.md (2026-06).
Assumed, where it says nothing:

- The stage that counts is that of 40 requests/s for 38 s, or any other by ``rate`` and ``requests``. It starts
  ``PAUSE_S`` after the first one ended, so that each router begins with empty queues.
- Prompts are asked for in one random order, again and again, as the generator of the study does.
- Two H100 a pod (weights and KV fit two of them, not one), timed by the compute model ``roofline`` as it ships;
  blocks of 64 tokens; vLLM's default step (8,192 tokens, 256 requests). Answers are nobody's prefix.
- Events reach the precise router at once. The estimated one remembers 31,250 blocks of 16 tokens a pod. The original
  looks at the first 256 of them only, some 4,096 tokens, so it tells groups apart and prompts of a group not; here it
  sees whole prompts. Figures of load are published at once.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa

import kvbench
from kvbench.trace import TraceFacts, TraceWriter

BLOCK_TOKENS = 64
GROUPS, PROMPTS, SHARED_TOKENS, PROMPT_TOKENS, OUTPUT_TOKENS = 150, 5, 6_000, 7_200, 1_000
PODS, POD_TOKENS = 8, 307_328
FIRST_RATE, PAUSE_S = 15.0, 250.0
WARMUP = GROUPS * PROMPTS
FACTS = TraceFacts(block_tokens=BLOCK_TOKENS)

ROUTERS: dict[str, dict[str, Any]] = {
    "precise": {"router": "llmd,prefix=0,precise_prefix=3"},
    "estimated": {
        "router": "llmd,prefix=1,queue=1,kv_utilization=1",
        "index": "approximate,capacity=500000tok",
    },
    "random": {"router": "random"},
    "load": {"router": "llmd,prefix=0,queue=1,kv_utilization=1"},
}
"""The four schedulers of the study, by their weights there."""

PUBLISHED = {
    "precise": (10_271, 0.488),
    "estimated": (8_046, 43.0),
    "random": (4_774, 101.3),
    "load": (4_946, 100.9),
}
"""Output tokens/s and p90 of TTFT in seconds, of the stage of 40 requests/s."""


def workload(rate: float = 40.0, requests: int = 1_520, output_tokens: int = OUTPUT_TOKENS, seed: int = 0) -> pa.Table:
    """The first stage, which asks for each prompt once, and one of ``requests`` at ``rate`` a second."""
    rng = np.random.default_rng(seed)
    seconds = np.cumsum(rng.exponential(1 / FIRST_RATE, WARMUP))
    seconds = np.concatenate([seconds, seconds[-1] + PAUSE_S + np.cumsum(rng.exponential(1 / rate, requests))])
    prompt = np.resize(rng.permutation(WARMUP), len(seconds))
    shared = SHARED_TOKENS // BLOCK_TOKENS
    own = -(-PROMPT_TOKENS // BLOCK_TOKENS) - shared
    ids = np.concatenate(
        [
            (prompt // PROMPTS * shared)[:, None] + np.arange(shared),
            (GROUPS * shared + prompt * own)[:, None] + np.arange(own),
        ],
        axis=1,
    ).astype(np.uint64)
    table = pa.table(
        {
            "arrival_ns": pa.array((seconds * 1e9).astype(np.int64)),
            "input_tokens": pa.array(np.full(len(ids), PROMPT_TOKENS), pa.uint32()),
            "output_tokens": pa.array(np.full(len(ids), output_tokens), pa.uint32()),
            "block_ids": pa.ListArray.from_arrays(
                np.arange(0, ids.size + 1, shared + own, dtype=np.int32), ids.ravel()
            ),
        }
    )
    return table.replace_schema_metadata(FACTS.to_metadata())


def study(trace: pa.Table) -> dict[str, dict[str, Any]]:
    """The timed figures of ``trace`` under each router."""
    settings: dict[str, Any] = {
        "workers": PODS,
        "capacity": POD_TOKENS // BLOCK_TOKENS,
        "model": "Qwen3-32B",
        "tp": 2,
        "compute": "roofline",
        "window": {"warmup": WARMUP},
        "registry": kvbench.load_registry(autoload=False),
    }
    return {name: kvbench.replay(trace, **settings, **how).summary["timed"] for name, how in ROUTERS.items()}


def figures(timed: dict[str, Any]) -> tuple[float, float]:
    """Output tokens/s, and p90 of TTFT in seconds."""
    return timed["throughput"]["output_tokens_per_s"], timed["ttft_ns"]["p90"] / 1e9


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write the trace of llm-d's study of routers.")
    parser.add_argument("trace", help="file to write, .arrow or .parquet")
    parser.add_argument("--output-tokens", type=int, default=OUTPUT_TOKENS, help="of each answer (%(default)s)")
    options = parser.parse_args()
    table = workload(output_tokens=options.output_tokens)
    with TraceWriter(options.trace, table.schema, FACTS) as writer:
        for batch in table.to_batches():
            writer.write(batch)


if __name__ == "__main__":
    main()
