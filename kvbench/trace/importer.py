"""Turns a foreign trace into a version 1 file: read, check, sort, renumber ids, write."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from blake3 import blake3

from kvbench.atomic import same_file
from kvbench.errors import OutputError, TraceError
from kvbench.trace.blocksize import check_block_tokens
from kvbench.trace.columns import numbers, validity
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.intake import Intake
from kvbench.trace.members import Members, base_name
from kvbench.trace.numbering import MEMBER_COLUMN, Numbering
from kvbench.trace.recut import split
from kvbench.trace.schema import canonical_json
from kvbench.trace.sources import is_trace
from kvbench.trace.spool import Spool
from kvbench.trace.writer import TraceWriter, check_output
from kvbench.units import NS_PER_S, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.trace.columns import Int64s
    from kvbench.trace.limit import PromptLimit
    from kvbench.trace.members import ImportSource
    from kvbench.trace.validate import OnError

IMPORT_KEY = b"kvbench.import"
"""Metadata of a trace that was imported: JSON with what :class:`ImportReport` says of the source's rows."""

COARSE_TIE_SHARE = 0.1
"""From this share of equal neighbouring arrivals on, the report says that the clock was coarse."""

MAX_SHIFTED_NS = 2**63 - 1

FIRST_DATE_NS = 10**18
"""Arrivals from here on (September 2001, if they count from 1970) are shown as dates."""


@dataclass(slots=True)
class ImportReport:
    """What an import did.

    ``rows``                written.
    ``members``             files that were read.
    ``passed_over``         names of the files of folders and archives that were not (licences and the like).
    ``skipped``, ``skipped_examples``  bad rows left out, and the messages of the first few.
    ``decreasing_steps``    neighbours in the source whose arrival went back; the rows were sorted.
    ``distinct_blocks``     different block ids; None for a trace without block ids.
    ``estimated_arrivals``  rows whose arrival was worked out from an earlier turn and a delay.
    ``shifted_ns``          taken off all arrivals, so that the earliest is 0.
    ``ignored_fields``      fields that were there and not used, with their number of rows.
    ``notes``               sentences about facts of the source that a reader of results should know.
    ``source_digest``       ``blake3:…`` of the source's bytes; of several files, of their names and digests.
    """

    rows: int = 0
    members: int = 0
    passed_over: list[str] = field(default_factory=list)
    skipped: int = 0
    skipped_examples: list[str] = field(default_factory=list)
    decreasing_steps: int = 0
    distinct_blocks: int | None = None
    estimated_arrivals: int = 0
    shifted_ns: int = 0
    ignored_fields: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    source_digest: str = ""

    def to_metadata(self) -> dict[bytes, bytes]:
        """What is known of the source before the rows are written, for the trace's file."""
        later = ("distinct_blocks", "source_digest")
        said = {name: value for name, value in dataclasses.asdict(self).items() if name not in later}
        return {IMPORT_KEY: canonical_json(said).encode()}


def guess_format(
    source: ImportSource | Sequence[ImportSource] | Members, formats: Sequence[tuple[str, TraceFormat]]
) -> tuple[str, TraceFormat]:
    """The one of ``formats`` (name, format) that all files of ``source`` look like.

    Give the same :class:`Members` to :func:`import_trace` where the source can be read only once.
    A file without content among others has no rows, and says nothing. Raises TraceError if a file looks
    like none or several, or two files look like different ones, or all are empty.
    """
    members = _members(source)
    first: tuple[str, TraceFormat] | None = None
    name = ""
    for lines in members:
        head, name = lines.head(), lines.name
        if not head.strip():
            continue
        found = [(name, candidate) for name, candidate in formats if candidate.sniff(head, lines.name)]
        if len(found) != 1:
            if not found and is_trace(head):
                raise _is_no_foreign_trace(lines.name)
            names = ", ".join(name for name, _ in found or formats)
            if found:
                raise TraceError(f"{lines.name}: could be any of ({names}); say which with --format")
            raise TraceError(
                f"{lines.name}: looks like none of the known formats ({names}); say which with --format, or give a map "
                "of its columns, as in --format columns,arrival=ts:ms,input=prompt_tokens"
            )
        if first is not None and found[0][0] != first[0]:
            raise TraceError(
                f"{lines.name}: looks like {found[0][0]}, and the files before it like {first[0]}; "
                "import them one by one, or say with --format what they all are"
            )
        first = found[0]
    if first is None:
        raise TraceError(f"{name}: is empty")
    return first


def import_trace(
    source: ImportSource | Sequence[ImportSource] | Members,
    output: str | Path,
    *,
    format: TraceFormat,
    block_tokens: int | None = None,
    keep_ids: bool = False,
    on_error: OnError = "fail",
    strict_order: bool = False,
    normalise_time: bool = False,
    shared_ids: bool = False,
    limit: PromptLimit | None = None,
    force: bool = False,
) -> ImportReport:
    """Read ``source`` as ``format`` and write it to ``output`` (``.arrow`` or ``.parquet``).

    ``source`` is one or several of what :class:`Members` takes, in any order. Rows are sorted by
    arrival, ties keep file order; ``strict_order`` makes a step back an error. ``normalise_time``
    shifts arrivals so that the earliest is 0, and lets them be negative before. Block ids are
    renumbered 0 … U-1 in first-seen order; ``keep_ids`` keeps the old ones in ``original_ids``. Ids
    whose scope is the file are kept apart by member unless ``shared_ids``. ``block_tokens`` overrides
    the format's block size; ``limit`` is for prompts that are too long. Memory is bounded whatever
    the number of rows, but for the numbers of ids that are not dense (21 to 34 bytes each) and what a format
    remembers of sessions.

    Raises TraceError for a bad source, OutputError for an output that cannot be written; then no
    output is left.
    """
    check_output(output)
    check_block_tokens(block_tokens)
    members = _members(source)
    for path in members.paths:
        if same_file(path, output):
            raise OutputError(f"{output} is the file that is imported; give another name")
    log = ReadLog(skip=on_error == "skip", any_origin=normalise_time or format.absolute_times)
    apart = len(members) > 1 and not shared_ids
    with Spool(Path(output).parent) as spool:
        intake = Intake(
            format, log, spool, block_tokens=block_tokens, strict_order=strict_order, tag_members=apart, limit=limit
        )
        for lines in members:
            if not format.reads_tables and is_trace(lines.head()):
                raise _is_no_foreign_trace(lines.name)
            intake.read(lines)
            lines.finish()
        if limit is not None and (note := limit.note()):
            log.notes.append(note)
        return _write(intake, members, log, spool, Path(output), keep_ids=keep_ids, apart=apart, force=force)


def _write(
    intake: Intake,
    members: Members,
    log: ReadLog,
    spool: Spool,
    output: Path,
    *,
    keep_ids: bool,
    apart: bool,
    force: bool,
) -> ImportReport:
    """The second half of an import: what ``intake`` has put into ``spool``, sorted, renumbered, written."""
    required = intake.finish()
    if intake.facts is None or spool.rows == intake.lacking:
        raise _nothing_left(members, log)
    columns = set(spool.columns) - {MEMBER_COLUMN}
    apart = apart and intake.facts.id_scope == "file" and "block_ids" in columns
    digest = _digest(members)
    facts = dataclasses.replace(intake.facts, source_name=members.title, source_digest=digest)
    numbering = Numbering(facts, columns, keep_ids, by_member=apart)
    if apart and not numbering.active:
        raise TraceError(f"{members.name}: ids of answers cannot be kept apart by file; import the files one by one")
    report = _report(members, log, spool, apart)
    report.rows -= intake.lacking
    report.source_digest = digest
    clock = _Clock()
    with TraceWriter(output, numbering.schema, numbering.facts, metadata=report.to_metadata(), force=force) as writer:
        for batch in spool.batches():
            if required is not None:
                batch = batch.filter(pa.array(validity(batch.column(required))))
            for piece in split(_shifted(batch, report.shifted_ns)):
                clock.see(piece)
                writer.write(numbering.renumbered(piece))
    report.distinct_blocks = numbering.distinct
    report.notes = [*clock.notes(), *report.notes]
    if columns.isdisjoint(("block_ids", "token_ids")):
        report.notes.append("prompts have lengths alone, no ids or texts, so nothing is known of their reuse")
    return report


def _members(source: ImportSource | Sequence[ImportSource] | Members) -> Members:
    return source if isinstance(source, Members) else Members(source)


def _is_no_foreign_trace(name: str) -> TraceError:
    return TraceError(
        f"{name}: is an Arrow or Parquet file already, and import is for foreign ones; "
        "`kvbench trace inspect` says whether it can be replayed as it is"
    )


def _nothing_left(members: Members, log: ReadLog) -> TraceError:
    if not log.rejected.count:
        return TraceError(f"{members.name}: has no rows")
    return TraceError(
        f"{members.name}: no row is left, for none of {log.rejected.count:,} is good; {log.rejected.examples[0]}"
    )


def _digest(members: Members) -> str:
    """Of one file, that of its bytes; of several, that of their names and digests."""
    digests = [lines.finish() for lines in members]
    if len(digests) == 1:
        return digests[0]
    said = "".join(f"{digest} {base_name(lines.name)}\n" for lines, digest in zip(members, digests, strict=True))
    return f"blake3:{blake3(said.encode()).hexdigest()}"


def _shifted(batch: pa.RecordBatch, shift_ns: int) -> pa.RecordBatch:
    if shift_ns == 0:
        return batch
    at = batch.schema.get_field_index("arrival_ns")
    arrivals: Int64s = numbers(batch.column(at)) - shift_ns
    return batch.set_column(at, batch.schema.field(at), pa.array(arrivals))


def _report(members: Members, log: ReadLog, spool: Spool, apart: bool) -> ImportReport:
    """All that is known before the rows are written."""
    report = ImportReport(
        rows=spool.rows,
        members=len(members),
        passed_over=sorted(base_name(name) for name in members.passed_over),
        skipped=log.rejected.count,
        skipped_examples=log.rejected.examples,
        decreasing_steps=spool.steps_back,
        estimated_arrivals=log.estimated_arrivals,
        ignored_fields=dict(sorted(log.ignored_fields.items())),
    )
    if log.any_origin:
        report.shifted_ns = spool.earliest_ns
        if spool.latest_ns - spool.earliest_ns > MAX_SHIFTED_NS:
            raise TraceError(f"{members.name}: arrivals are too far apart; times are counted in 64-bit nanoseconds")
    report.notes = [*log.notes, *_notes(report)]
    if apart:
        report.notes.append(
            f"ids of the {len(members):,} files are kept apart, for in this format they mean something in their own "
            "file only; --shared-ids says that the files are parts of one trace"
        )
    return report


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
    if report.shifted_ns:
        notes.append(f"arrivals count from the earliest, {_moment(report.shifted_ns)}")
    if report.passed_over:
        notes.append(f"files that were passed over: {', '.join(report.passed_over)}")
    if report.decreasing_steps:
        notes.append(f"the rows were sorted by arrival: it went back {_times(report.decreasing_steps)} in the source")
    if report.ignored_fields:
        counts = ", ".join(f"{name} ({rows:,} rows)" for name, rows in report.ignored_fields.items())
        notes.append(f"fields that were there and are not used: {counts}")
    return notes


def _moment(nanoseconds: int) -> str:
    """A time of a source: its date where it is one of after 2001, else its distance from the source's 0."""
    if nanoseconds < FIRST_DATE_NS:
        return f"{format_duration_ns(nanoseconds)} by the source's clock"
    date = datetime.fromtimestamp(nanoseconds // NS_PER_S, UTC)
    return f"{date:%Y-%m-%d %H:%M:%S} UTC"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
