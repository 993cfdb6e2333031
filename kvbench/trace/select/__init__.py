"""A part of a trace, or several traces in one, at another rate: what ``kvbench trace select`` writes.

The order of operations is fixed, whatever the order of the settings: of each trace bad rows are left
out or refused, then rows are chosen by number, by time, by session, tenant and model, and then by the
sample; the traces are merged by arrival (at a tie, the one that was named first comes first); the rate
is scaled; the whole is repeated; the first arrival is moved.

Memory is a batch or two of each trace, about 30 bytes a distinct block and as many a sampled unit, and the
rows that arrive at one time.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from kvbench.atomic import same_file
from kvbench.errors import ConfigError, OutputError, TraceError
from kvbench.trace.numbering import Numbering
from kvbench.trace.select.apart import Namespaces
from kvbench.trace.select.clock import Clock
from kvbench.trace.select.filters import RowFilter, RowRange
from kvbench.trace.select.merge import merged, with_columns
from kvbench.trace.select.tenants import TENANT, tenant_names, with_tenant
from kvbench.trace.writer import TraceWriter, check_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from kvbench.trace.reader import Trace
    from kvbench.trace.sampling import UnitChoice
    from kvbench.trace.schema import TraceFacts

__all__ = ["RowRange", "SelectReport", "Selection", "select_traces"]

ALIKE = ("block_tokens", "tail_rule", "id_kind", "id_scope")
"""Facts that merged traces must have in common."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What to take of each trace, and what to do with it.

    ``rows``        of the trace, both ends included, counted from 1 after bad rows were left out.
    ``from_ns``, ``until_ns``  arrivals from the first time on and before the second, on the trace's clock.
    ``sessions``, ``tenants``, ``models``  names; empty takes all.
    ``drop_silent``  leave out rows with 0 output tokens, which some services log for a failure.
    ``sample``      whole sessions or prefix trees.
    ``scale_rate``  times as many requests a second: offsets from the first arrival, and think times, are divided by it.
    ``repeat``      the whole so many times, one mean gap after another, each time with fresh ids and names.
    ``start_ns``    when the first row arrives; None leaves it.
    ``shared_ids``  equal ids and names in different traces mean the same; otherwise they are told apart.
    ``name_tenants``  rows without a tenant are of one that is called as the file of their trace, without its ending.
    """

    rows: RowRange = field(default_factory=RowRange)
    from_ns: int = 0
    until_ns: int | None = None
    sessions: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    drop_silent: bool = False
    sample: UnitChoice | None = None
    scale_rate: Fraction = Fraction(1)
    repeat: int = 1
    start_ns: int | None = None
    shared_ids: bool = False
    name_tenants: bool = False


@dataclass(slots=True)
class SelectReport:
    """What was selected: rows read, kept and written; rows left out as bad and as silent; distinct blocks
    written (None where they are not numbered); and of a sample, units met and kept, and the shares of rows
    and of ids that it has."""

    read_rows: int = 0
    kept_rows: int = 0
    rows: int = 0
    distinct_blocks: int | None = None
    rejected: int = 0
    silent: int = 0
    units: int | None = None
    kept_units: int | None = None
    sampled_rows_share: float | None = None
    sampled_ids_share: float | None = None
    capacity_factor: float = 1.0


def select_traces(
    traces: Sequence[Trace],
    output: str | Path,
    selection: Selection,
    *,
    force: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> SelectReport:
    """Write what ``selection`` takes of ``traces`` to ``output``.

    Block ids are numbered anew, 0 … U-1 in first-seen order, unless answers have ids, too. Raises
    ConfigError for traces that do not go together and a selection that they cannot give, TraceError for
    bad rows and when no row is left, OutputError as a :class:`kvbench.trace.writer.TraceWriter` does.
    """
    check_output(output)
    _check(traces, output, selection)
    columns = set().union(*(trace.schema.names for trace in traces))
    if selection.name_tenants:
        columns.add(TENANT)
    numbering = Numbering(_facts(traces, selection), columns, keep_ids=False)
    namespaces = Namespaces(traces, selection.repeat, selection.shared_ids)
    names = tenant_names(traces) if selection.name_tenants else [None] * len(traces)
    clock = Clock(selection.scale_rate, selection.start_ns)
    report = SelectReport(capacity_factor=numbering.facts.capacity_factor)
    with TraceWriter(output, numbering.schema, numbering.facts, force=force) as writer:
        for copy in range(selection.repeat):
            filters = [RowFilter(trace, selection) for trace in traces]
            prepared = [_prepared(each, namespaces, copy, at, columns, names[at]) for at, each in enumerate(filters)]
            for batch in merged(prepared):
                writer.write(numbering.renumbered(clock.moved(batch)))
                report.rows += batch.num_rows
                if progress is not None:
                    progress(report.rows, None)
            if report.rows == 0:
                raise TraceError(f"{_names(traces)}: no row is left by this selection")
            clock.next_copy()
    _fill(report, filters, selection)
    report.distinct_blocks = numbering.distinct
    report.rejected = sum(trace.rejected.count for trace in traces)
    return report


def _prepared(
    chosen: RowFilter, namespaces: Namespaces, copy: int, source: int, columns: set[str], tenant: str | None
) -> Iterator[pa.RecordBatch]:
    for batch in chosen.batches():
        batch = with_columns(namespaces.apart(batch, copy, source), columns)
        yield batch if tenant is None else with_tenant(batch, tenant)


def _check(traces: Sequence[Trace], output: str | Path, selection: Selection) -> None:
    for trace in traces:
        if same_file(trace.name, output):
            raise OutputError(f"{output} is one of the traces that are read; give another name")
        for name, wanted in (
            ("session_id", selection.sessions),
            ("tenant", selection.tenants),
            ("model", selection.models),
            ("output_tokens", selection.drop_silent),
        ):
            if wanted and name not in trace.schema.names:
                raise ConfigError(f"{trace.name} has no column {name}, so nothing can be selected by it")
        if selection.sample is not None:
            selection.sample.check(trace)
        if selection.repeat > 1 and not trace.rewindable:
            raise ConfigError(f"--repeat reads {trace.name} again, which can be read only once; save it to a file")
    if selection.shared_ids and len(traces) == 1:
        raise ConfigError("--shared-ids has no effect on one trace; it is for several")
    if not selection.scale_rate > 0:
        raise ConfigError(f"--scale-rate = {float(selection.scale_rate):g} must be above 0")
    if selection.repeat < 1:
        raise ConfigError(f"--repeat = {selection.repeat} is below 1")
    if selection.until_ns is not None and selection.until_ns <= selection.from_ns:
        raise ConfigError("--until must be after --from, for the window is from the one to before the other")
    first = traces[0]
    for trace in traces[1:]:
        if trace.ids != first.ids:
            raise ConfigError(
                f"{first.name} has {first.ids or 'no ids'} and {trace.name} {trace.ids or 'no ids'}; "
                "traces that are merged need the same kind"
            )
        for name in ALIKE if first.ids is not None else ():
            one, other = getattr(first.facts, name), getattr(trace.facts, name)
            if one != other:
                raise ConfigError(
                    f"{name} is {one} in {first.name} and {other} in {trace.name}; traces that are merged need the same"
                )
        if trace.facts.capacity_factor != first.facts.capacity_factor:
            raise ConfigError(
                f"{first.name} and {trace.name} are samples of different shares, and no capacity fits both"
            )


def _facts(traces: Sequence[Trace], selection: Selection) -> TraceFacts:
    facts = traces[0].facts
    factor = facts.capacity_factor * (selection.sample.share if selection.sample is not None else 1.0)
    return dataclasses.replace(
        facts,
        dense=False,
        source_name="selection of " + " and ".join(trace.facts.source_name or trace.name for trace in traces),
        source_format=facts.source_format if len(traces) == 1 else "",
        source_digest=facts.source_digest if len(traces) == 1 else "",
        capacity_factor=factor,
    )


def _fill(report: SelectReport, filters: Sequence[RowFilter], selection: Selection) -> None:
    """Add what the last pass read and kept."""
    report.read_rows = sum(each.read_rows for each in filters)
    report.kept_rows = sum(each.kept_rows for each in filters)
    report.silent = sum(each.silent_rows for each in filters)
    if selection.sample is None:
        return
    report.units = sum(each.sample.units for each in filters if each.sample is not None)
    report.kept_units = sum(each.sample.kept_units for each in filters if each.sample is not None)
    candidates, ids = sum(each.candidate_rows for each in filters), sum(each.candidate_ids for each in filters)
    report.sampled_rows_share = report.kept_rows / candidates if candidates else None
    report.sampled_ids_share = sum(each.kept_ids for each in filters) / ids if ids else None


def _names(traces: Sequence[Trace]) -> str:
    return ", ".join(trace.name for trace in traces)
