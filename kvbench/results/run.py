"""A replay from configuration to result: the one path behind ``kvbench replay`` and
:func:`kvbench.replay`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from kvbench.atomic import same_file
from kvbench.errors import ConfigError, OutputError
from kvbench.replays.engine import Engine
from kvbench.replays.plan import make_plan
from kvbench.replays.tiers import TieredCore
from kvbench.replays.timedengine import TimedEngine
from kvbench.results.columns import RequestColumns
from kvbench.results.events import EVENTS_SCHEMA, events_batch, timed_events_batch
from kvbench.results.parquet import TableWriter, write_parquet
from kvbench.results.repeats import repeat
from kvbench.results.requests import RequestTable
from kvbench.results.result import ReplayResult, make_result, wall_clock
from kvbench.results.timed import TimedTotals
from kvbench.results.timedtimeline import TIMED_TIMELINE_SCHEMA, TimedTimeline
from kvbench.results.timeline import TIMELINE_SCHEMA, timeline_batch
from kvbench.results.totals import Totals
from kvbench.results.window import Window
from kvbench.trace.columns import numbers
from kvbench.trace.reader import Trace, open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.replays.engine import Served
    from kvbench.replays.plan import Plan
    from kvbench.replays.serveplan import ServePlan
    from kvbench.replays.tierplan import TierPlan
    from kvbench.replays.timedengine import AnyEngine
    from kvbench.replays.timedfacts import TimedSample
    from kvbench.results.repeats import RepeatResult
    from kvbench.trace.reader import TraceSource

    Progress = Callable[[int, int | None], None]
    Clock = Callable[[], float]


class Sink(Protocol):
    """Takes the record batches of a table."""

    def write(self, batch: pa.RecordBatch) -> None: ...


class Collector:
    """A sink that keeps the rows in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema)


def open_configured(config: RunConfig, source: TraceSource | Trace | None = None, *, hold_bytes: int = 0) -> Trace:
    """The trace of ``config``, or ``source`` read with its settings; one that is open stays as it is.

    ``hold_bytes``  as of :func:`kvbench.open_trace`.
    """
    if isinstance(source, Trace):
        return source
    if source is None:
        if config.trace is None:
            raise ConfigError("no trace: name one on the command line, or as 'trace' in the run file")
        source = config.trace
    for path in (config.output, config.events, config.timeline):
        if path is not None and _is_same_file(source, path):
            raise OutputError(f"{path} is the trace that is read; give another name")
    return open_trace(
        source,
        block_tokens=config.block_tokens,
        tail_rule=config.tail_rule,
        id_kind=config.id_kind,
        id_scope=config.id_scope,
        on_error=config.on_error,
        hold_bytes=hold_bytes,
    )


def _is_same_file(source: TraceSource, path: str) -> bool:
    if source == "-":
        return same_file("/dev/stdin", path)
    return isinstance(source, (str, Path)) and same_file(source, path)


def run_replay(
    config: RunConfig,
    registry: Registry,
    *,
    source: TraceSource | Trace | None = None,
    keep_requests: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> ReplayResult:
    """Replay a trace and write what the configuration asks for.

    ``source``         instead of the configured trace: anything that ``open_trace`` takes, or what it gave for the
                       settings of ``config``.
    ``keep_requests``  keep the ``requests`` table in the result.
    ``progress``       called after each batch with the rows done and the rows there are (or None).
    ``clock``          seconds of a clock, to fill ``wall_clock`` of the result.

    Files appear only when the whole replay is done. Raises ConfigError for several seeds
    (:func:`run_repeats`).
    """
    if config.seeds > 1:
        raise ConfigError(f"--seeds = {config.seeds}: one replay has one seed; kvbench.replay_seeds takes several")
    trace = open_configured(config, source)
    plan = make_plan(config, registry, trace)
    engine: AnyEngine
    timed: TimedTotals | None = None
    if plan.serving is None:
        engine = Engine(plan, trace, keep_events=config.events is not None)
    else:
        engine = TimedEngine(plan, trace, keep_events=config.events is not None)
        timed = make_totals(plan.serving)
    recorder = Recorder(
        plan,
        trace,
        keep_requests=keep_requests,
        has_bound=engine.has_bound,
        timed=timed,
        moved=_moves_arrivals(plan),
    )
    with ExitStack() as stack:
        recorder.open(stack)
        done, rows = 0, trace.rows
        started = clock() if clock is not None else 0.0
        for served in engine.run():
            recorder.add(engine, served, done)
            done += served.batch.num_rows
            if isinstance(engine, TimedEngine) and recorder.has_converged:
                engine.stop("converged")
            if progress is not None:
                progress(done, rows)
        recorder.close(engine)
        facts = None if timed is None or not isinstance(engine, TimedEngine) else (timed, engine.facts())
        result = make_result(plan, trace, engine, recorder.totals, registry, facts)
        if clock is not None:
            result.wall_clock = wall_clock(result, clock() - started)
        recorder.finish(result)
    return result


def run_repeats(
    config: RunConfig,
    registry: Registry,
    *,
    source: TraceSource | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> RepeatResult:
    """The replay of ``config`` under each of its seeds; arguments as for :func:`run_replay`."""

    def run(seed: int) -> ReplayResult:
        one = msgspec.structs.replace(config, seed=seed, seeds=1)
        return run_replay(one, registry, source=source, progress=progress, clock=clock)

    return repeat(run, range(config.seed, config.seed + config.seeds))


def make_totals(serving: ServePlan) -> TimedTotals:
    """Totals that count the requests, and hold them to the limits, that ``serving`` names."""
    window, slo = serving.window, serving.slo
    start_ns = max(window.start_ns, window.warmup_ns)
    limits = {"ttft": slo.ttft_ns, "tpot": slo.tpot_ns, "e2e": slo.e2e_ns}
    return TimedTotals(
        Window(window.warmup_rows, start_ns or None, window.end_ns),
        {name: limit for name, limit in limits.items() if limit is not None},
    )


class Recorder:
    """Adds up the totals of a replay and streams out its tables.

    ``timed``  of a timed replay: its totals; they say which requests all figures are of.
    ``moved``  whether requests of a timed replay may arrive at other times than the trace says.
    """

    def __init__(
        self,
        plan: Plan,
        trace: Trace,
        *,
        keep_requests: bool,
        has_bound: bool,
        timed: TimedTotals | None = None,
        moved: bool = False,
    ) -> None:
        config = plan.config
        self.totals = Totals(config.workers)
        self.timed = timed
        self._plan = plan
        self._block_tokens = trace.facts.block_tokens
        known = {"ids"} if trace.ids is not None else set()
        if known and config.seen == "exact":
            known.add("seen")
        if known and config.workers > 1:
            known.add("workers")
        if known and has_bound:
            known.add("belady")
        self._tiers = [tier.name for tier in plan.tiers or ()]
        self._table = RequestTable(trace.schema, known, self._tiers, timed=timed is not None, moved=moved)
        self._kept = Collector(self._table.schema) if keep_requests else None
        self._requests: TableWriter | None = None
        self._events: TableWriter | None = None
        self._timeline: TableWriter | None = None
        self._samples: TimedTimeline | None = None
        self._last_ns = 0

    def open(self, stack: ExitStack) -> None:
        """Open the files that were asked for."""
        config = self._plan.config
        wanted = [
            (config.output, self._table.schema),
            (config.events, EVENTS_SCHEMA),
            (config.timeline, TIMELINE_SCHEMA if self.timed is None else TIMED_TIMELINE_SCHEMA),
        ]
        tables = [(path, schema) for path, schema in wanted if path is not None]
        writers = iter(stack.enter_context(write_parquet(tables, force=config.force)))
        self._requests = next(writers) if config.output is not None else None
        self._events = next(writers) if config.events is not None else None
        self._timeline = next(writers) if config.timeline is not None else None

    def add(self, engine: AnyEngine, served: Served, first: int) -> None:
        """Take in one served batch, before which ``first`` requests came."""
        numbers_of = np.arange(first, first + served.batch.num_rows) if served.numbers is None else served.numbers
        columns = RequestColumns.of(served, self._block_tokens, self._tiers, recompute=self._plan.config.recompute)
        if self.timed is not None and served.times is not None:
            self.totals.pass_time(columns.arrival_ns)
            self.totals.add(columns.only(self.timed.add(columns, served.times, numbers_of)))
        else:
            self.totals.add(columns)
        sinks: list[Sink] = [sink for sink in (self._requests, self._kept) if sink is not None]
        if sinks:
            batch = self._table.batch(columns, numbers_of)
            for sink in sinks:
                sink.write(batch)
        log = engine.core.log
        arrival_ns = numbers(served.batch.column("arrival_ns"))
        if isinstance(engine, TimedEngine):
            self._write_timed_events(engine)
        elif self._events is not None and log is not None:
            self._events.write(events_batch(log, first, arrival_ns, engine.core.tier_names))
            log.clear()
        if len(arrival_ns):
            self._last_ns = int(arrival_ns[-1])
        self._write_timeline(engine)

    def _write_timed_events(self, engine: TimedEngine) -> None:
        log = engine.core.log
        if self._events is not None and log is not None:
            times = engine.core.replay.take_event_times()
            self._events.write(timed_events_batch(log, times, engine.core.tier_names))
            log.clear()

    @property
    def has_converged(self) -> bool:
        """Whether a timed replay may stop, as its figures are known well enough."""
        share = None if self._plan.serving is None else self._plan.serving.stop.converged
        return share is not None and self.timed is not None and self.timed.converged(share)

    def add_samples(
        self, samples: Sequence[TimedSample], tiers: Sequence[TierPlan], capacities: Sequence[int | None]
    ) -> None:
        """Write what was sampled of a timed replay since the last call; ``capacities`` are in chunks of a store."""
        if self._timeline is not None:
            self._samples = self._samples or TimedTimeline(tiers, capacities)
            self._timeline.write(self._samples.batch(samples))

    def _write_timeline(self, engine: AnyEngine) -> None:
        if isinstance(engine, TimedEngine):
            self.add_samples(engine.core.timed_samples, engine.core.tiers, engine.core.capacities)
            engine.core.timed_samples.clear()
        elif (
            self.timed is None
            and self._timeline is not None
            and isinstance(engine.core, TieredCore)
            and engine.core.samples
        ):
            self._timeline.write(timeline_batch(engine.core.samples, engine.core.tiers, engine.core.capacities))
            engine.core.samples.clear()

    def close(self, engine: AnyEngine) -> None:
        """Sample the timeline once more at the end, and write the events since the last batch."""
        if isinstance(engine, TimedEngine):
            self._write_timed_events(engine)
        if self._timeline is None or not isinstance(engine.core, TieredCore):
            return
        if isinstance(engine, TimedEngine):
            engine.core.take_sample(engine.core.replay.now_ns)
        elif self.timed is None:
            engine.core.sample(self._last_ns)
        self._write_timeline(engine)

    def finish(self, result: ReplayResult) -> None:
        """Write the manifests and hand over the rows that were kept."""
        for writer in (self._requests, self._events, self._timeline):
            if writer is not None:
                writer.finish(result.manifest)
        if self._kept is not None:
            result.requests = self._kept.table()


def _moves_arrivals(plan: Plan) -> bool:
    """Whether requests of a timed replay may arrive at other times than the trace says."""
    if plan.serving is None:
        return False
    arrivals = plan.serving.arrivals
    return arrivals.mode != "trace" or arrivals.rate != 1 or arrivals.jitter_ns > 0
