"""A trace small enough to read, and valid in every respect."""

from __future__ import annotations

import pyarrow as pa

from kvbench.trace.synth.chat import make_chat

BLOCK_TOKENS = 16


def small_trace(ids: str = "block_ids") -> pa.Table:
    """Six chats over two system prompts, about 20 requests, at 16 tokens a block.

    ``ids`` is the column that identifies the prompts: ``block_ids`` or ``token_ids``. The same
    table at each call; :func:`kvbench.replay` takes it as it is.
    """
    chat = make_chat(
        7,
        sessions=6,
        system_prompts=2,
        system_tokens=40,
        turns=3.0,
        user_tokens=20.0,
        output_tokens=20.0,
        block_tokens=BLOCK_TOKENS,
        ids=ids.removesuffix("_ids"),
    )
    table = pa.Table.from_batches(chat.batches(), chat.schema)
    return table.replace_schema_metadata(chat.facts.to_metadata())
