"""Answers that stay in the cache: a request's chain goes on through the blocks that its answer fills."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.trace.columns import list_parts, numbers

if TYPE_CHECKING:
    from kvbench.tokens import KeyBatch, TokenDatabase

OUTPUT_COLUMNS = {"block_ids": "output_block_ids", "token_ids": "output_token_ids"}
"""The column that says what the answer is, for each column that says what the prompt is."""


def output_column(columns: frozenset[str]) -> str:
    """The column of answers of a trace. Raises ConfigError where there is none."""
    for prompt, output in OUTPUT_COLUMNS.items():
        if prompt in columns:
            if output not in columns or "output_tokens" not in columns:
                raise ConfigError(f"--store-output needs the columns output_tokens and {output}")
            return output
    raise ConfigError("--store-output needs a trace with ids")


def with_outputs(database: TokenDatabase, batch: pa.RecordBatch) -> KeyBatch:
    """The keys of ``batch``, each request's leading blocks followed by those that its answer fills
    (``outputs`` says how many), partial ones last.

    The last token of an answer has no KV yet, so prompt and answer fill
    (input + output - 1) // block tokens blocks.
    """
    prompt = database.keys(batch, keep_tails=False)
    chain = database.keys(_chain_batch(batch, database.facts.block_tokens or 1), keep_tails=False)
    asked = np.diff(prompt.offsets)
    outputs = np.maximum(chain.cacheable - prompt.cacheable, 0)
    offsets = np.concatenate([[0], np.cumsum(asked + outputs, dtype=np.int64)])
    keys = np.empty(int(offsets[-1]), np.uint64)
    leading = prompt.cacheable + outputs
    _place(keys, offsets[:-1], chain.keys, chain.offsets[:-1], leading)
    _place(keys, offsets[:-1] + leading, prompt.keys, prompt.offsets[:-1] + prompt.cacheable, asked - prompt.cacheable)
    return replace(prompt, keys=keys, offsets=offsets, outputs=outputs.astype(np.int32))


def _place(into: np.ndarray, at: np.ndarray, values: np.ndarray, start: np.ndarray, counts: np.ndarray) -> None:
    """Copy ``values[start[i]:start[i] + counts[i]]`` to ``into[at[i]:…]`` for every i."""
    total = int(counts.sum())
    rows = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    into[at[rows] + steps] = values[start[rows] + steps]


def _chain_batch(batch: pa.RecordBatch, block_tokens: int) -> pa.RecordBatch:
    """The batch with each prompt's full part and its answer as one prompt."""
    prompt = "block_ids" if "block_ids" in batch.schema.names else "token_ids"
    prompt_at, prompt_ids = list_parts(batch.column(prompt))
    output_at, output_ids = list_parts(batch.column(OUTPUT_COLUMNS[prompt]))
    lengths = numbers(batch.column("input_tokens")).astype(np.int64)
    answers = numbers(batch.column("output_tokens")).astype(np.int64)
    kept = np.diff(prompt_at)
    if prompt == "block_ids":
        kept = np.minimum(kept, lengths // block_tokens)
        added = np.diff(output_at)
    else:
        added = np.maximum(np.diff(output_at) - 1, 0)
    offsets = np.concatenate([[0], np.cumsum(kept + added, dtype=np.int64)])
    ids = np.empty(int(offsets[-1]), numbers(prompt_ids).dtype)
    _place(ids, offsets[:-1], numbers(prompt_ids), prompt_at[:-1], kept)
    _place(ids, offsets[:-1] + kept, numbers(output_ids), output_at[:-1], added)
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["input_tokens"] = pa.array(lengths + np.maximum(answers - 1, 0))
    columns[prompt] = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids))
    return pa.RecordBatch.from_pydict(columns)
