"""``ids``: the trace carries block ids already (semantics §2.3).

An id of kind ``prefix`` stands for its block and everything before it, and is the key. An id of
kind ``content`` stands for its own tokens only, and is chained here. Where an id means the same
(``scope``) and the namespace of the row are mixed in by a bijection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import TraceError
from kvbench.tokens.database import KeyBatch, TokenDatabase
from kvbench.tokens.mixing import chain_ids, mix_ids
from kvbench.trace.columns import list_parts, numbers

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.trace.schema import TraceFacts


class IdsDatabase(TokenDatabase):
    """Keys from ``block_ids``, by the kind and scope of the trace's facts."""

    def __init__(self, facts: TraceFacts, columns: frozenset[str]) -> None:
        super().__init__(facts, columns)
        if facts.id_scope == "session" and "session_id" not in columns:
            raise TraceError("ids of scope session need a column session_id, and there is none; give --id-scope file")

    @property
    def dense(self) -> bool:
        return self.facts.dense and self.facts.id_kind == "prefix" and not self._told_apart()

    def keys(self, batch: pa.RecordBatch, *, keep_tails: bool) -> KeyBatch:
        offsets, values = list_parts(batch.column("block_ids"))
        ids = numbers(values)
        blocks = np.diff(offsets)
        if not keep_tails:
            # Without ids of partial blocks, too: an answer's last block is not full until its last token has KV.
            full = numbers(batch.column("input_tokens")).astype(np.int64) // (self.facts.block_tokens or 1)
            blocks = np.minimum(blocks, full)
        return KeyBatch(self._mixed(batch, ids, offsets), offsets, blocks.astype(np.int32))

    def _told_apart(self) -> list[str]:
        return self.namespace_columns() + (["session_id"] if self.facts.id_scope == "session" else [])

    def _mixed(
        self, batch: pa.RecordBatch, ids: npt.NDArray[np.uint64], offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint64]:
        if self.facts.id_kind == "prefix" and not self._told_apart():
            return ids
        roots, rows = self.namespace_rows(batch, by_session=self.facts.id_scope == "session")
        words = np.array([int.from_bytes(root[:8], "little") for root in roots], dtype=np.uint64)
        keys = np.empty_like(ids)
        mix = mix_ids if self.facts.id_kind == "prefix" else chain_ids
        mix(ids, offsets, np.ascontiguousarray(words[rows]), keys)
        return keys
