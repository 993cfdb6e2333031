"""Traces written as what other tools read.

A form is one file here. It says which columns it can carry and what it must refuse; all else that a
trace has and a form has not is told in notes, so that nothing is lost in silence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from kvbench.atomic import atomic_path, same_file
from kvbench.errors import ConfigError, OutputError
from kvbench.plugins import did_you_mean
from kvbench.trace.reader import open_trace
from kvbench.trace.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from kvbench.trace.reader import Trace

TRACE_FORMS = ("arrow", "parquet")


@dataclass(slots=True)
class ExportReport:
    """How many ``rows`` were written, and ``notes`` on what the form does not carry and how to read it."""

    rows: int = 0
    notes: list[str] = field(default_factory=list)


class TraceExport(ABC):
    """Writes traces in one form.

    ``carries``  the columns that it can hold, ``original_ids`` among them where it writes these instead of
                 the ids that the import made of them.
    """

    carries: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def check(self, trace: Trace) -> list[str]:
        """Notes for a reader of the file. Raises TraceError for a trace that the form would make another of."""

    @abstractmethod
    def write(self, trace: Trace, batches: Iterator[pa.RecordBatch], path: Path) -> None:
        """Write all rows to ``path``. Raises TraceError for a value that the form cannot hold."""


def forms() -> dict[str, TraceExport]:
    """All forms by name, but for those that are traces themselves (:data:`TRACE_FORMS`)."""
    from kvbench.trace.exports.jsonlines import AiperfExport, MooncakeExport
    from kvbench.trace.exports.oracle import OracleGeneralExport
    from kvbench.trace.exports.table import CsvExport

    return {
        "aiperf": AiperfExport(),
        "csv": CsvExport(),
        "libcachesim": OracleGeneralExport(),
        "mooncake": MooncakeExport(),
    }


def export_trace(
    source: str | Path,
    output: str | Path,
    *,
    to: str,
    block_tokens: int | None = None,
    force: bool = False,
) -> ExportReport:
    """Write the trace ``source`` to ``output`` in the form ``to``: one of :func:`forms` or :data:`TRACE_FORMS`.

    Raises ConfigError for an unknown form, TraceError for a trace that is bad or that the form would make
    another of, OutputError for an output that cannot be written; then no output is left.
    """
    if source != "-" and same_file(source, output):
        raise OutputError(f"{output} is the trace that is exported; give another name")
    trace = open_trace(source, block_tokens=block_tokens)
    report = ExportReport()
    if to in TRACE_FORMS:
        if not str(output).endswith(f".{to}"):
            raise OutputError(f"{output}: give it a name that ends in .{to}")
        with TraceWriter(output, trace.schema, trace.facts, force=force) as writer:
            for batch in _counted(trace, report):
                writer.write(batch)
        return report
    known = forms()
    if to not in known:
        raise ConfigError(f"unknown form {to!r}; {did_you_mean(to, [*known, *TRACE_FORMS])}")
    form = known[to]
    report.notes = form.check(trace)
    lost = [name for name in trace.schema.names if name not in form.carries]
    if lost:
        report.notes.append(f"not carried by {to}: {', '.join(lost)}")
    with atomic_path(output, force) as temporary:
        form.write(trace, _counted(trace, report), temporary)
    return report


def _counted(trace: Trace, report: ExportReport) -> Iterator[pa.RecordBatch]:
    for batch in trace.batches():
        report.rows += batch.num_rows
        yield batch


def id_names(trace: Trace) -> str | None:
    """The column with the ids to export: those of the source where they were kept, else those of the trace."""
    return next((name for name in ("original_ids", "block_ids") if name in trace.schema.names), None)
