"""Inputs of the benchmarks of vLLM (``timed_trace``) and SGLang (Mooncake mode): JSON lines.

vLLM's labels, block size and multiplier of times are options of its command line, and so they are here. SGLang
reads times (ms), ids and answers; it makes prompts of their ids.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.derived import fill_blocks
from kvbench.trace.formats.ids import IdLists
from kvbench.trace.formats.tablefiles import JsonTable, first_object, require_columns
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import TOKENS, Seconds
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

IDS = IdLists()


class VllmTimedFormat(TraceFormat):
    """vLLM's. ``time``, ``input``, ``output``, ``ids`` are the labels; times in seconds after ``multiplier``."""

    def __init__(
        self,
        time: str = "timestamp",
        input: str = "input_length",
        output: str = "output_length",
        ids: str = "hash_ids",
        multiplier: float = 1.0,
        block_tokens: int = 16,
    ) -> None:
        self._labels = {"time": time, "input": input, "output": output, "ids": ids}
        self._times = Seconds(9, Decimal(repr(multiplier)))
        self._block_tokens = block_tokens

    def sniff(self, head: bytes, name: str) -> bool:
        """Never: with the labels that it has by default, a file looks like Mooncake's, whose units differ."""
        return False

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._block_tokens, source_format="vllm-timed")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        labels, checked = self._labels, False
        for piece in JsonTable(lines).pieces():
            if not checked and piece.rows:
                require_columns(lines.name, piece.names(), labels.values())
                checked = True
            rows = Rows(piece)
            rows.read("arrival_ns", labels["time"], self._times, required=True)
            rows.read("input_tokens", labels["input"], TOKENS, required=True)
            rows.read("output_tokens", labels["output"], TOKENS)
            rows.take("block_ids", labels["ids"], piece.lists(labels["ids"], IDS), required=True)
            piece.count(log.ignored_fields, labels.values())
            yield rows.batch(lines.name, log)


class SglangBenchFormat(TraceFormat):
    """SGLang's. ``slowdown`` stretches times; ``block_tokens`` is the size of a block."""

    def __init__(self, slowdown: float = 1.0, block_tokens: int = 512) -> None:
        self._times = Seconds(6, Decimal(repr(slowdown)))
        self._block_tokens = block_tokens

    def sniff(self, head: bytes, name: str) -> bool:
        names = set(first_object(head) or ())
        return {"timestamp", "hash_ids", "output_length"} <= names and not names & {"input_length", "chat_id"}

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._block_tokens, source_format="sglang-bench")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        for piece in JsonTable(lines).pieces():
            rows = Rows(piece)
            rows.read("arrival_ns", "timestamp", self._times, required=True)
            rows.read("output_tokens", "output_length", TOKENS)
            rows.take("block_ids", "hash_ids", piece.lists("hash_ids", IDS), required=True)
            fill_blocks(rows, "hash_ids", self._block_tokens)
            piece.count(log.ignored_fields, ("timestamp", "output_length", "hash_ids"))
            yield rows.batch(lines.name, log)
        log.notes.append(f"{lines.name}: prompts are taken to fill their last block of {self._block_tokens:,} tokens")
