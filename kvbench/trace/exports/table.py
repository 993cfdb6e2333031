"""CSV with all columns of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from kvbench.trace.exports import TraceExport, id_names
from kvbench.trace.schema import COLUMNS, is_list

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvbench.trace.reader import Trace

PARAMS = {
    "arrival_ns": "arrival=arrival_ns:ns",
    "input_tokens": "input=input_tokens",
    "output_tokens": "output=output_tokens",
    "token_ids": "tokens=token_ids",
    "request_id": "request=request_id",
    "session_id": "session=session_id",
    "turn": "turn=turn",
    "think_time_ns": "think=think_time_ns:ns",
    "model": "model=model",
    "adapter": "adapter=adapter",
    "tenant": "tenant=tenant",
    "priority": "priority=priority",
    "type": "type=type",
}
"""How ``--format columns`` reads each column back, but for block ids."""


class CsvExport(TraceExport):
    """One row a request, a header, lists as numbers with blanks between."""

    carries = frozenset(column.name for column in COLUMNS)

    def check(self, trace: Trace) -> list[str]:
        facts, ids = trace.facts, id_names(trace)
        words = ["columns", *(PARAMS[name] for name in trace.schema.names if name in PARAMS), "origin=zero"]
        if ids is not None:
            words += [f"ids={ids}", "id_base=decimal", f"block_tokens={facts.block_tokens}"]
            words += [f"tail_rule={facts.tail_rule}", f"id_kind={facts.id_kind}", f"id_scope={facts.id_scope}"]
        return [f"to read it again: kvbench trace import FILE --format {','.join(words)}"]

    def write(self, trace: Trace, batches: Iterator[pa.RecordBatch], path: Path) -> None:
        schema = pa.schema([pa.field(f.name, pa.string() if is_list(f.type) else f.type) for f in trace.schema])
        with csv.CSVWriter(str(path), schema) as writer:
            for batch in batches:
                columns = [_text(column) if is_list(column.type) else column for column in batch.columns]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _text(lists: pa.Array) -> pa.Array:
    return pc.binary_join(lists.cast(pa.list_(pa.string())), " ")
