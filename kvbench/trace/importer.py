"""Turns a foreign trace into a version 1 file: read, sort, check, renumber ids, write."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from kvbench.atomic import same_file
from kvbench.errors import OutputError, TraceError
from kvbench.trace.blocksize import check_block_tokens
from kvbench.trace.columns import numbers
from kvbench.trace.formats import ROW_COLUMN, ReadLog, TraceFormat
from kvbench.trace.formats.text import Lines
from kvbench.trace.numbering import Numbering
from kvbench.trace.recut import split
from kvbench.trace.schema import COLUMNS, TraceFacts, make_schema
from kvbench.trace.sources import is_trace
from kvbench.trace.validate import BatchValidator, OnError
from kvbench.trace.writer import TraceWriter, check_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvbench.trace.columns import Int64s

    ImportSource: TypeAlias = str | Path | Lines

COARSE_TIE_SHARE = 0.1
"""From this share of equal neighbouring arrivals on, the report says that the clock was coarse."""


@dataclass(slots=True)
class ImportReport:
    """What an import did.

    ``rows``                written.
    ``skipped``, ``skipped_examples``  bad rows left out, and the messages of the first few.
    ``decreasing_steps``    neighbours in the file whose arrival went back; the rows were sorted.
    ``distinct_blocks``     different block ids; None for a trace without block ids.
    ``estimated_arrivals``  rows whose arrival was worked out from an earlier turn and a delay.
    ``ignored_fields``      fields that were there and not used, with their number of rows.
    ``notes``               sentences about facts of the file that a reader of results should know.
    ``source_digest``       ``blake3:…`` of the source's bytes.
    """

    rows: int = 0
    skipped: int = 0
    skipped_examples: list[str] = field(default_factory=list)
    decreasing_steps: int = 0
    distinct_blocks: int | None = None
    estimated_arrivals: int = 0
    ignored_fields: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    source_digest: str = ""


def guess_format(source: ImportSource, formats: Sequence[tuple[str, TraceFormat]]) -> tuple[str, TraceFormat]:
    """The one of ``formats`` (name, format) that ``source`` looks like. Raises TraceError if none or several.

    Give the same :class:`Lines` to :func:`import_trace` where the source can be read only once.
    """
    lines = _lines(source)
    head = _foreign_head(lines)
    if not head.strip():
        raise TraceError(f"{lines.name}: is empty")
    found = [(name, candidate) for name, candidate in formats if candidate.sniff(head, lines.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(name for name, _ in found or formats)
    problem = "could be any of" if found else "looks like none of the known formats"
    raise TraceError(f"{lines.name}: {problem} ({names}); say which with --format")


def import_trace(
    source: ImportSource,
    output: str | Path,
    *,
    format: TraceFormat,
    block_tokens: int | None = None,
    keep_ids: bool = False,
    on_error: OnError = "fail",
    strict_order: bool = False,
    force: bool = False,
) -> ImportReport:
    """Read ``source`` as ``format`` and write it to ``output`` (``.arrow`` or ``.parquet``).

    Rows are sorted by arrival, ties keep file order; ``strict_order`` makes a step back an error.
    Block ids are renumbered 0 … U-1 in first-seen order; ``keep_ids`` keeps the old ones in
    ``original_ids``. ``block_tokens`` overrides the format's block size. All rows are held in memory.

    Raises TraceError for a bad source, OutputError for an output that cannot be written; then no
    output is left.
    """
    check_output(output)
    check_block_tokens(block_tokens)
    lines = _lines(source)
    if same_file(lines.path, output):
        raise OutputError(f"{output} is the file that is imported; give another name")
    _foreign_head(lines)
    log = ReadLog(skip=on_error == "skip")
    table = _collect(format, lines, log)
    steps = _count_steps_back(table, lines.name, strict_order)
    facts = _facts(format, lines, block_tokens)
    validator = BatchValidator(facts, lines.name, on_error, ordered=False, rejected=log.rejected)
    numbering = Numbering(facts, set(table.schema.names) - {ROW_COLUMN}, keep_ids)
    report = ImportReport(decreasing_steps=steps, source_digest=lines.digest or "")
    clock = _Clock()
    with TraceWriter(output, numbering.schema, numbering.facts, force=force) as writer:
        for batch in _sorted_pieces(table, by_arrival=steps > 0):
            good = _accepted(batch, validator)
            clock.see(good)
            writer.write(numbering.renumbered(good))
            report.rows += good.num_rows
        if report.rows == 0:
            raise _nothing_left(lines, log)
    report.skipped, report.skipped_examples = log.rejected.count, log.rejected.examples
    report.distinct_blocks = numbering.distinct
    report.estimated_arrivals = log.estimated_arrivals
    report.ignored_fields = dict(sorted(log.ignored_fields.items()))
    report.notes = [*clock.notes(), *_notes(report)]
    return report


def _lines(source: ImportSource) -> Lines:
    return source if isinstance(source, Lines) else Lines(Path(source))


def _foreign_head(lines: Lines) -> bytes:
    """The first bytes of a foreign trace. Raises TraceError for a file that is a trace already."""
    head = lines.head()
    if is_trace(head):
        raise TraceError(
            f"{lines.name}: is an Arrow or Parquet file already, and import is for foreign ones; "
            "`kvbench trace inspect` says whether it can be replayed as it is"
        )
    return head


def _nothing_left(lines: Lines, log: ReadLog) -> TraceError:
    if not log.rejected.count:
        return TraceError(f"{lines.name}: has no rows")
    return TraceError(
        f"{lines.name}: no row is left, for none of {log.rejected.count:,} is good; {log.rejected.examples[0]}"
    )


def _collect(format: TraceFormat, lines: Lines, log: ReadLog) -> pa.Table:
    """All rows in file order: version 1 columns that hold anything, and the row column."""
    batches = list(format.read(lines, log))
    if not batches:
        raise _nothing_left(lines, log)
    table = pa.Table.from_batches(batches)
    if ROW_COLUMN not in table.schema.names:
        table = table.append_column(ROW_COLUMN, pa.array(np.arange(1, table.num_rows + 1, dtype=np.uint64)))
    for column in COLUMNS:
        name = column.name
        if not column.required and name in table.schema.names and table[name].null_count == table.num_rows:
            table = table.drop_columns([name])
    return table.combine_chunks()


def _facts(format: TraceFormat, lines: Lines, block_tokens: int | None) -> TraceFacts:
    facts = format.facts()
    return dataclasses.replace(
        facts,
        block_tokens=facts.block_tokens if block_tokens is None else block_tokens,
        source_name=Path(lines.name).name,
        source_digest=lines.digest or "",
    )


def _count_steps_back(table: pa.Table, where: str, strict_order: bool) -> int:
    arrivals = table["arrival_ns"].to_numpy()
    back = np.flatnonzero(np.diff(arrivals) < 0)
    if strict_order and len(back):
        after = int(back[0]) + 1
        row = table[ROW_COLUMN][after].as_py()
        rule = f"is before the previous row's {int(arrivals[after - 1]):,}; leave out --strict-order to sort the rows"
        raise TraceError.at(where, row, "arrival_ns", int(arrivals[after]), rule)
    return len(back)


def _sorted_pieces(table: pa.Table, by_arrival: bool) -> Iterator[pa.RecordBatch]:
    if by_arrival:
        order = np.argsort(table["arrival_ns"].to_numpy(), kind="stable")
        table = table.take(pa.array(order)).combine_chunks()
    for batch in table.to_batches():
        yield from split(batch)


def _accepted(batch: pa.RecordBatch, validator: BatchValidator) -> pa.RecordBatch:
    """The rows of ``batch`` that keep the rules, without the row column."""
    row_numbers = numbers(batch.column(ROW_COLUMN)).astype(np.int64)
    schema = make_schema({name for name in batch.schema.names if name != ROW_COLUMN})
    batch = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
    bad = validator.check(batch, row_numbers=row_numbers)
    return batch if bad is None else batch.filter(~bad)


class _Clock:
    """Counts equal neighbouring arrivals."""

    def __init__(self) -> None:
        self._rows = 0
        self._ties = 0
        self._last: int | None = None

    def see(self, batch: pa.RecordBatch) -> None:
        arrivals: Int64s = numbers(batch.column("arrival_ns"))
        if len(arrivals) == 0:
            return
        self._ties += int(np.count_nonzero(np.diff(arrivals) == 0)) + int(self._last == arrivals[0])
        self._rows += len(arrivals)
        self._last = int(arrivals[-1])

    def notes(self) -> list[str]:
        steps = self._rows - 1
        if steps < 1 or self._ties < COARSE_TIE_SHARE * steps:
            return []
        return [
            f"arrival times are coarse: {self._ties:,} of {steps:,} neighbouring rows ({self._ties / steps:.0%}) "
            "arrive at the same time, so a timed replay contains bursts that the recorded service may not have had"
        ]


def _notes(report: ImportReport) -> list[str]:
    notes = []
    if report.estimated_arrivals:
        notes.append(
            f"{report.estimated_arrivals:,} arrivals were estimated as the previous turn's arrival plus the delay, "
            "without the time that serving the previous turn took"
        )
    if report.decreasing_steps:
        notes.append(f"the rows were sorted by arrival: it went back {report.decreasing_steps:,} times in the file")
    if report.ignored_fields:
        counts = ", ".join(f"{name} ({rows:,} rows)" for name, rows in report.ignored_fields.items())
        notes.append(f"fields that were there and are not used: {counts}")
    return notes
