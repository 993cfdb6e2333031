"""A sweep from plan to result: what is known is found, the rest is run, and all of it is one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kvbench.atomic import same_file
from kvbench.errors import ConfigError, KvbenchError, OutputError, TraceError
from kvbench.plugins import own_version
from kvbench.results.result import RESULT_VERSION, trace_facts
from kvbench.results.tidy import check_table
from kvbench.sweeps.cell import OF_TRACE, CellRunner
from kvbench.sweeps.curves import curve_groups, curve_summaries
from kvbench.sweeps.executor import CellOutcome, CellTask, Executor
from kvbench.sweeps.file import known_cells, write_sweep
from kvbench.sweeps.identity import CellHasher
from kvbench.sweeps.journal import CellRecord, Journal
from kvbench.sweeps.plan import check_parts
from kvbench.sweeps.result import SweepCell, SweepResult, count_of_cells
from kvbench.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kvbench.plugins import Registry
    from kvbench.sweeps.journal import Method
    from kvbench.sweeps.plan import PlannedCell, SweepPlan

    Progress = Callable[[int, int | None], None]


class InThisProcess(Executor):
    """Runs cells one after another, here, with the parts of ``registry``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        runner = CellRunner(self._registry)
        return map(runner.run, tasks)


@dataclasses.dataclass(slots=True)
class _Sweep:
    """A sweep under way: its cells, their hashes, what is known by hash, and the digest that the trace's rows have
    wherever a cell runs (None where cells read it in different ways)."""

    plan: SweepPlan
    cells: list[PlannedCell]
    hashes: list[str]
    methods: dict[str, Method]
    known: dict[str, CellRecord]
    journal: Journal | None
    progress: Progress | None
    digest: str | None

    def take(self, records: Sequence[CellRecord]) -> None:
        """Take over what another run found: cells of this sweep that are done, in the way that this one would."""
        for record in records:
            if record.status == "done" and self.methods.get(record.config_hash) == record.method:
                self.known[record.config_hash] = record
        self.tell()

    def add(self, record: CellRecord) -> None:
        """Take in a cell that has just run."""
        # What comes from a file has been JSON, in which a tuple is a list and NaN is null; so has all else.
        record = msgspec.json.decode(msgspec.json.encode(record), type=CellRecord)
        self.known[record.config_hash] = record
        if self.journal is not None and record.status == "done":
            self.journal.add(record)
        self.tell()

    def tell(self) -> None:
        if self.progress is not None:
            self.progress(len(self.known), len(self.methods))

    def missing(self) -> list[PlannedCell]:
        """The cells that are not known, each configuration once."""
        first: dict[str, PlannedCell] = {}
        for cell in self.cells:
            first.setdefault(self.hashes[cell.number], cell)
        return [cell for config_hash, cell in first.items() if config_hash not in self.known]


def run_sweep(
    plan: SweepPlan,
    registry: Registry,
    *,
    executor: Executor | None = None,
    output: str | None = None,
    force: bool = False,
    method: Literal["auto", "replay"] = "auto",
    progress: Progress | None = None,
    clock: Callable[[], float] | None = None,
    autoload: bool = True,
) -> SweepResult:
    """Run the cells of ``plan`` that are not known yet.

    ``executor``  where they run; None: one after another in this process, with the parts of ``registry``.
    ``output``    .parquet or .csv to write. Finished cells are in ``OUTPUT.journal`` until all are, so that the same
                  sweep goes on from there; a file of the same cells, or of some of them, is extended.
    ``force``     run all anew, and replace what is there.
    ``method``    ``auto``: LRU cells that differ in capacity alone are answered by the exact curve, in one pass.
    ``progress``  called with the cells that are done and the cells there are, equal ones counted once.
    ``clock``     seconds of a clock, to fill ``wall_clock``.
    ``autoload``  whether installed plugins count where cells run.

    Raises a KvbenchError for a trace, a setting or an output that no cell could do with; a cell that fails is a cell
    of the result. What is raised when the sweep is cut short has a note on what was kept.
    """
    started = clock() if clock is not None else 0.0
    _check_files(plan, output, force=force)
    hasher = CellHasher(plan.trace, registry)
    plan, facts = _with_trace(plan)
    cells = plan.cells()
    check_parts(cells, registry)
    hashes = [hasher.config_hash(cell.settings) for cell in cells]
    groups = curve_groups(cells) if method == "auto" and facts["ids"] is not None else []
    by_curve = {cell.number for group in groups for cell in group}
    methods: dict[str, Method] = {
        hashes[cell.number]: "curve" if cell.number in by_curve else "replay" for cell in cells
    }
    digest = None if any(path in OF_TRACE for path in plan.paths) else facts["digest"]
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(output)) if output is not None else None
        sweep = _Sweep(plan, cells, hashes, methods, {}, journal, progress, digest)
        if journal is not None and output is not None:
            _find(sweep, journal, output, force=force)
        found = sum(each in sweep.known for each in hashes)
        try:
            _run_curves(sweep, groups, registry)
            _run_replays(sweep, executor or InThisProcess(registry), autoload=autoload)
            result = SweepResult(_manifest(sweep, facts, hasher), _result_cells(sweep), found)
            if output is not None:
                write_sweep(result, output)
        except BaseException as error:
            if journal is not None and output is not None and sweep.known:
                error.add_note(_kept_note(sweep, journal, output, force=force))
            raise
        if journal is not None:
            journal.remove()
    if clock is not None:
        result.wall_clock = {"total_s": clock() - started}
    return result


def _kept_note(sweep: _Sweep, journal: Journal, output: str, *, force: bool) -> str:
    how = "the same command goes on from there"
    if force:
        how = "the same command without --force goes on from there"
        if Path(output).exists():
            how = f"to go on from there, remove {output} and leave out --force"
    return f"{count_of_cells(len(sweep.known))} kept in {journal.path}; {how}"


def _check_files(plan: SweepPlan, output: str | None, *, force: bool) -> None:
    if plan.trace == "-":
        raise ConfigError("a sweep reads its trace many times, which standard input cannot be; save it to a file")
    if output is None:
        if force:
            raise ConfigError("--force has no effect without --output")
        return
    if same_file(plan.trace, output):
        raise OutputError(f"{output} is the trace that is read; give another name")
    check_table(output, force=True)


def _with_trace(plan: SweepPlan) -> tuple[SweepPlan, dict[str, Any]]:
    """The plan, without the Belady bound unless that was asked for, and the facts of its trace, all of whose rows are
    read: if they are bad, no cell needs to run."""
    trace = open_trace(plan.trace, **{name: plan.base[name] for name in OF_TRACE if name in plan.base})
    try:
        for _ in trace.batches():
            pass
    except TraceError:
        if not any(path in OF_TRACE for path in plan.paths):
            raise
    if trace.ids is not None and "belady" not in plan.paths:
        plan = dataclasses.replace(plan, base={"belady": "off", **plan.base})
    return plan, trace_facts(trace)


def _find(sweep: _Sweep, journal: Journal, output: str, *, force: bool) -> None:
    """Take over what an earlier run left."""
    if force:
        journal.clear()
        return
    if Path(output).exists():
        records = known_cells(output)
        others = sum(record.config_hash not in sweep.methods for record in records)
        if others:
            raise OutputError(
                f"{output} has {count_of_cells(others)} not of this sweep (other settings, another trace, or another "
                "version of kvbench); give --force to replace it, or another name"
            )
        sweep.take(records)
    sweep.take(journal.read())


def _run_curves(sweep: _Sweep, groups: Sequence[Sequence[PlannedCell]], registry: Registry) -> None:
    missing = {cell.number for cell in sweep.missing()}
    for group in groups:
        wanted = [cell for cell in group if cell.number in missing]
        if not wanted:
            continue
        try:
            summaries = curve_summaries(sweep.plan.trace, wanted, registry)
        except KvbenchError:
            continue  # their replays say what it is
        for cell, summary in zip(wanted, summaries, strict=True):
            if summary is not None:
                record = CellRecord(
                    config_hash=sweep.hashes[cell.number], method="curve", status="done", summary=summary
                )
                sweep.add(record)


def _run_replays(sweep: _Sweep, executor: Executor, *, autoload: bool) -> None:
    tasks = [
        CellTask(number=cell.number, settings={"trace": sweep.plan.trace, **cell.settings}, autoload=autoload)
        for cell in sweep.missing()
    ]
    if not tasks:
        return
    waiting = {task.number: task for task in tasks}
    outcomes = executor.run(tasks)
    try:
        for outcome in outcomes:
            if waiting.pop(outcome.number, None) is not None:
                sweep.add(_record(sweep, outcome))
    finally:
        if isinstance(outcomes, Generator):
            # Where taking in a cell failed, the executor lets go now, not when the error is forgotten.
            outcomes.close()
    for task in waiting.values():
        sweep.add(_record(sweep, CellOutcome.failed(task, "its executor gave no outcome")))


def _record(sweep: _Sweep, outcome: CellOutcome) -> CellRecord:
    trace = sweep.plan.trace
    found = None if outcome.manifest is None else outcome.manifest["trace"]["digest"]
    if found is not None and sweep.digest not in (None, found):
        error = f"{trace} has other rows where the cell ran, of digest {found}; copy it there"
        outcome = CellOutcome(number=outcome.number, status="failed", error=error)
    return CellRecord(
        config_hash=sweep.hashes[outcome.number],
        method="replay",
        status=outcome.status,
        # Where the trace lies is no part of a result.
        error=None if outcome.error is None else outcome.error.replace(trace, Path(trace).name),
        summary=outcome.summary,
    )


def _manifest(sweep: _Sweep, facts: dict[str, Any], hasher: CellHasher) -> dict[str, Any]:
    plan = sweep.plan
    plugins: dict[str, str] = {}
    for cell in sweep.cells:
        plugins |= hasher.plugins(cell.settings)
    return {
        "version": RESULT_VERSION,
        "kvbench": own_version(),
        "plugins": dict(sorted(plugins.items())),
        "config": plan.base,
        "axes": {path: _distinct([cell.axes[path] for cell in sweep.cells]) for path in plan.paths},
        "trace": {**facts, "file_digest": hasher.trace_digest},
    }


def _distinct(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _result_cells(sweep: _Sweep) -> list[SweepCell]:
    cells = []
    for cell in sweep.cells:
        record = sweep.known[sweep.hashes[cell.number]]
        cells.append(
            SweepCell(
                number=cell.number,
                config_hash=record.config_hash,
                axes=cell.axes,
                settings=cell.settings,
                status=record.status,
                error=record.error,
                method=record.method,
                summary=record.summary,
            )
        )
    return cells
