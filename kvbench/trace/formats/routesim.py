"""RouteSim's JSON lines: times, lengths, and one shared prefix for each request.

``prefix_hash`` names the first ``prefix_len`` tokens of a prompt. As blocks: the full ones of the prefix are
those of every prompt with this hash, all after them are of this prompt alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.tablefiles import JsonTable, first_object
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import PRIORITY, TOKENS, Seconds, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kvbench.trace.formats.text import Lines

REQUIRED = {"ts", "prompt_tokens"}
COLUMNS = (
    ("session_id", "conversation_id", as_text),
    ("adapter", "lora_adapter", as_text),
    ("priority", "priority", PRIORITY),
)
MAX_BLOCKS = 1 << 16
"""Of one prompt: a few letters of a file must not fill the memory."""
ROWS_AT_ONCE = 256
"""So that these rows with so many blocks each are not too much at once."""


class RouteSimFormat(TraceFormat):
    """See the module. ``block_tokens`` is the size of the blocks that are made."""

    def __init__(self, block_tokens: int = 16) -> None:
        self._block_tokens = block_tokens
        self._blocks = _Blocks()

    def sniff(self, head: bytes, name: str) -> bool:
        return set(first_object(head) or ()) >= REQUIRED

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._block_tokens, tail_rule="floor", source_format="routesim")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        used = {*REQUIRED, "gen_tokens", "prefix_hash", "prefix_len", *(name for _, name, _ in COLUMNS)}
        for piece in JsonTable(lines, ROWS_AT_ONCE).pieces():
            rows = Rows(piece)
            rows.read("arrival_ns", "ts", Seconds(6), required=True)
            rows.read("input_tokens", "prompt_tokens", TOKENS, required=True)
            rows.read("output_tokens", "gen_tokens", TOKENS)
            for column, name, reader in COLUMNS:
                rows.read(column, name, reader)
            rows.columns["block_ids"] = self._ids(rows)
            piece.count(log.ignored_fields, used)
            yield rows.batch(lines.name, log)

    def _ids(self, rows: Rows) -> pa.Array:
        names = rows.values("prefix_hash", as_text).to_pylist()
        lengths = rows.values("prefix_len", TOKENS).to_pylist()
        prompts = rows.numbers("input_tokens").tolist()
        good = rows.good()
        lists: list[npt.NDArray[np.uint64] | None] = []
        for row, length in enumerate(lengths):
            shared = (length or 0) if names[row] is not None else 0
            blocks = prompts[row] // self._block_tokens
            if shared > prompts[row]:
                rows.refuse(row, "prefix_len", shared, f"is more than the prompt has, {prompts[row]:,}")
            elif blocks > MAX_BLOCKS:
                rows.refuse(row, "prompt_tokens", prompts[row], f"makes more than {MAX_BLOCKS:,} blocks")
            elif good[row]:
                lists.append(self._blocks.of(names[row], shared // self._block_tokens, blocks))
                continue
            lists.append(None)
        return pa.array(lists, pa.list_(pa.uint64()))


class _Blocks:
    """Ids for the blocks of prompts: the same for the same place in the same prefix, new ones otherwise."""

    def __init__(self) -> None:
        self._next = 0
        self._known: dict[str, npt.NDArray[np.uint64]] = {}

    def of(self, prefix: str | None, shared: int, blocks: int) -> npt.NDArray[np.uint64]:
        """The ids of a prompt of ``blocks`` full blocks, the first ``shared`` of which are of ``prefix``."""
        if prefix is None or not shared:
            return self._new(blocks)
        known = self._known.get(prefix, np.zeros(0, np.uint64))
        if len(known) < shared:
            known = np.concatenate([known, self._new(shared - len(known))])
            self._known[prefix] = known
        return np.concatenate([known[:shared], self._new(blocks - shared)])

    def _new(self, count: int) -> npt.NDArray[np.uint64]:
        self._next += count
        return np.arange(self._next - count, self._next, dtype=np.uint64)
