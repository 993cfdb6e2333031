"""Traces of prompts in tokens."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kvbench.trace.schema import TraceFacts


def token_trace(prompts: list[list[int]], block_tokens: int = 2, **columns: Any) -> pa.Table:
    """One request for each prompt, with these further columns."""
    fixed = {
        "arrival_ns": pa.array(range(len(prompts)), pa.int64()),
        "input_tokens": pa.array(map(len, prompts), pa.uint32()),
        "token_ids": pa.array(prompts, pa.list_(pa.uint32())),
    }
    metadata = TraceFacts(block_tokens=block_tokens).to_metadata()
    return pa.table({**fixed, **columns}).replace_schema_metadata(metadata)
