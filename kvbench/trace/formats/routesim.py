"""RouteSim's JSON lines: times, lengths, and one shared prefix for each request.

``prefix_hash`` names the first ``prefix_len`` tokens of a prompt. As blocks: the full ones of the prefix are
those of every prompt with this hash, all after them are of this prompt alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.madeblocks import IdSource, NamedIds, Run, with_ids
from kvbench.trace.formats.tablefiles import JsonTable, first_object
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import PRIORITY, TOKENS, Seconds, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

REQUIRED = {"ts", "prompt_tokens"}
COLUMNS = (
    ("session_id", "conversation_id", as_text),
    ("adapter", "lora_adapter", as_text),
    ("priority", "priority", PRIORITY),
)
MAX_BLOCKS = 1 << 16
"""Of one prompt: a few letters of a file must not fill the memory."""


class RouteSimFormat(TraceFormat):
    """See the module. ``block_tokens`` is the size of the blocks that are made."""

    def __init__(self, block_tokens: int = 16) -> None:
        self._block_tokens = block_tokens
        self._ids = IdSource()
        self._prefixes = NamedIds(self._ids)

    def sniff(self, head: bytes, name: str) -> bool:
        return set(first_object(head) or ()) >= REQUIRED

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._block_tokens, tail_rule="floor", source_format="routesim")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        used = {*REQUIRED, "gen_tokens", "prefix_hash", "prefix_len", *(name for _, name, _ in COLUMNS)}
        for piece in JsonTable(lines).pieces():
            rows = Rows(piece)
            rows.read("arrival_ns", "ts", Seconds(6), required=True)
            rows.read("input_tokens", "prompt_tokens", TOKENS, required=True)
            rows.read("output_tokens", "gen_tokens", TOKENS)
            for column, name, reader in COLUMNS:
                rows.read(column, name, reader)
            runs = self._runs(rows)
            piece.count(log.ignored_fields, used)
            yield from with_ids(rows.batch(lines.name, log), runs)

    def _runs(self, rows: Rows) -> list[list[Run]]:
        """The ids of each good row; others are refused."""
        names = rows.values("prefix_hash", as_text).to_pylist()
        lengths = rows.values("prefix_len", TOKENS).to_pylist()
        prompts = rows.numbers("input_tokens").tolist()
        runs = []
        for row, is_good in enumerate(rows.good().tolist()):
            shared = (lengths[row] or 0) if names[row] is not None else 0
            blocks = prompts[row] // self._block_tokens
            if shared > prompts[row]:
                rows.refuse(row, "prefix_len", shared, f"is more than the prompt has, {prompts[row]:,}")
            elif blocks > MAX_BLOCKS:
                rows.refuse(row, "prompt_tokens", prompts[row], f"makes more than {MAX_BLOCKS:,} blocks")
            elif is_good:
                prefix = self._prefixes.first(shared // self._block_tokens, names[row]) if shared else []
                runs.append([*prefix, self._ids.take(blocks - shared // self._block_tokens)])
        return runs
