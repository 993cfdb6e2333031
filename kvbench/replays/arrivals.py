"""When requests arrive on the simulated clock, which starts at 0 with the trace's first row."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.errors import ConfigError, TraceError
from kvbench.replays.keyed import Keyed
from kvbench.seeds import stream_seed
from kvbench.serveconfig import MAX_TIME_NS
from kvbench.trace.columns import numbers, validity
from kvbench.trace.sampling import mix64
from kvbench.units import NS_PER_S, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.replays.keyed import KeyedTrace
    from kvbench.replays.serveplan import ServePlan

    Bools = npt.NDArray[np.bool_]
    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

UNKNOWN = -1
SPLITMIX_STEP = np.uint64(0x9E3779B97F4A7C15)
"""From one state of SplitMix64 to the next: draw k of a stream is a function of its seed and k alone."""


@dataclass(frozen=True, slots=True)
class ArrivalBatch:
    """Requests, in the order in which they arrive; in that of the trace in a closed loop.

    ``keyed``       their rows and keys. Its own times are those of the trace.
    ``arrival_ns``  when each is meant to arrive, on the simulated clock; -1: when others have ended.
    ``session``     number of the session that a request waits for the last turn of, in mode ``session``; -1: none.
    ``wait_ns``     pause after that turn's end; 0 where ``arrival_ns`` says when.
    ``input_tokens``, ``output_tokens``  lengths; where the trace does not know the answer's, it is 1.
    ``rows``        number of each row in the trace, from 0.
    """

    keyed: Keyed
    arrival_ns: Int64s
    session: Int32s
    wait_ns: Int64s
    input_tokens: Int64s
    output_tokens: Int64s
    rows: Int64s

    def take(self, rows: Int64s) -> ArrivalBatch:
        """These rows, in this order."""
        arrays = (getattr(self, name)[rows] for name in ARRAYS)
        return ArrivalBatch(self.keyed.take(rows), *arrays)

    @staticmethod
    def join(batches: list[ArrivalBatch]) -> ArrivalBatch:
        """The rows of all ``batches``, of which there is one at least, one after another."""
        if len(batches) == 1:
            return batches[0]
        arrays = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ARRAYS)
        return ArrivalBatch(Keyed.join([batch.keyed for batch in batches]), *arrays)


ARRAYS = ("arrival_ns", "session", "wait_ns", "input_tokens", "output_tokens", "rows")


class Arrivals:
    """The requests of one timed replay of ``keyed``.

    Mode ``trace`` takes memory for the rows of a few batches, and for those within one span of jitter twice
    over; mode ``session`` numbers all sessions.

    ``stopped``  after the last batch: ``time limit`` or ``row limit`` if that, and not the trace's end, made
                 it the last; else None.
    """

    def __init__(self, plan: ServePlan, keyed: KeyedTrace, seed: int) -> None:
        self.stopped: str | None = None
        self._plan = plan
        self._keyed = keyed
        self._seed = stream_seed(seed, "arrivals/jitter")
        self._sessions = _Sessions(plan.arrivals.think_ns, keyed.trace.name)
        self._ties = _Ties()

    def batches(self) -> Iterator[ArrivalBatch]:
        """All requests. To be called once.

        Raises TraceError for a turn whose pause is unknown (mode ``session``), ConfigError for an arrival
        that the clock does not reach.
        """
        mode, jitter_ns = self._plan.arrivals.mode, self._plan.arrivals.jitter_ns
        batches = self._in_time(self._scaled())
        if jitter_ns and mode == "trace":
            batches = _sorted((self._moved(batch), int(batch.arrival_ns[-1])) for batch in batches)
            batches = self._in_time(batches)
        elif mode == "session":
            batches = (self._closed(self._moved(batch) if jitter_ns else batch) for batch in batches)
        elif mode == "concurrency":
            batches = (_with(batch, arrival_ns=np.full_like(batch.arrival_ns, UNKNOWN)) for batch in batches)
        yield from batches

    def cautions(self) -> list[str]:
        """After the last batch: what to know before its times are relied on."""
        arrivals = self._plan.arrivals
        if arrivals.mode == "concurrency" or arrivals.jitter_ns or not self._ties.are_coarse:
            return []
        gap = format_duration_ns(self._ties.mean_gap_ns).replace(" ", "")
        return [
            f"timestamps of {self._keyed.trace.name} are coarse: {self._ties.share:.0%} of its requests arrive at the "
            f"very time of the one before, in bursts about {gap} apart, which load would not have; spread them with "
            f"jitter={gap} in --arrivals"
        ]

    def _scaled(self) -> Iterator[ArrivalBatch]:
        """The rows up to the row limit, at their times divided by the rate."""
        rate, limit = self._plan.arrivals.rate, self._plan.stop.rows
        first_ns: int | None = None
        done = 0
        with closing(self._keyed.batches()) as items:
            for item in items:
                count = item.batch.num_rows
                if count == 0:
                    continue
                if limit is not None and done + count > limit:
                    self.stopped = "row limit"
                    count = limit - done
                    if count == 0:
                        return
                    item = item.take(np.arange(count))
                trace_ns = numbers(item.batch.column("arrival_ns"))
                self._ties.add(trace_ns)
                first_ns = int(trace_ns[0]) if first_ns is None else first_ns
                arrival_ns = trace_ns - first_ns
                if rate != 1:
                    # Exact at any rate, and whatever the product of the two is.
                    scaled = arrival_ns.astype(object) * rate.denominator // rate.numerator
                    self._check(int(scaled[-1]), done + count)
                    arrival_ns = scaled.astype(np.int64)
                self._check(int(arrival_ns[-1]), done + count)
                yield _batch(item, arrival_ns, done)
                done += count
                if self.stopped is not None:
                    return

    def _in_time(self, batches: Iterable[ArrivalBatch]) -> Iterator[ArrivalBatch]:
        """What arrives before the time limit, where the trace says when all of them do."""
        limit_ns = self._plan.stop.time_ns
        for batch in batches:
            if limit_ns is None or self._plan.arrivals.mode != "trace" or batch.arrival_ns[-1] < limit_ns:
                yield batch
                continue
            self.stopped = "time limit"
            within = np.flatnonzero(batch.arrival_ns < limit_ns)
            if len(within):
                yield batch.take(within)
            return

    def _moved(self, batch: ArrivalBatch) -> ArrivalBatch:
        """Each arrival later by a random time of its own."""
        states = np.uint64(self._seed) + (batch.rows.astype(np.uint64) + np.uint64(1)) * SPLITMIX_STEP
        shares = (mix64(states) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        moves = np.floor(shares * self._plan.arrivals.jitter_ns).astype(np.int64)
        return _with(batch, arrival_ns=batch.arrival_ns + moves)

    def _closed(self, batch: ArrivalBatch) -> ArrivalBatch:
        """Each turn after the first when the one before it has ended."""
        session, follows, wait_ns = self._sessions.of(batch.keyed.batch, batch.rows)
        return _with(
            batch,
            arrival_ns=np.where(follows, UNKNOWN, batch.arrival_ns),
            session=session,
            wait_ns=np.where(follows, wait_ns, 0),
        )

    def _check(self, arrival_ns: int, row: int) -> None:
        if arrival_ns > MAX_TIME_NS:
            raise ConfigError(
                f"{self._keyed.trace.name}, row {row}: arrives {arrival_ns / NS_PER_S:,.0f} s after the first, and "
                f"the clock ends at {MAX_TIME_NS / NS_PER_S:,.0f} s; check the unit of its times, and the rate"
            )


class _Sessions:
    """Numbers sessions from 0 as they come, and says what each turn after the first waits for."""

    def __init__(self, think_ns: int | None, trace: str) -> None:
        self._think_ns = think_ns
        self._trace = trace
        self._codes: dict[str, int] = {}

    def of(self, batch: pa.RecordBatch, rows: Int64s) -> tuple[Int32s, Bools, Int64s]:
        """For each row its session (-1: it has none), whether it follows an earlier row of it, and the pause
        between that one's end and its own arrival."""
        encoded = batch.column("session_id").dictionary_encode()
        known = len(self._codes)
        mine = [self._codes.setdefault(text, len(self._codes)) for text in encoded.dictionary.to_pylist()]
        at = encoded.indices.fill_null(len(mine)).to_numpy()
        session = np.array([*mine, UNKNOWN], np.int32)[at]
        follows = session >= 0
        new = np.flatnonzero(session >= known)
        follows[new[np.unique(session[new], return_index=True)[1]]] = False
        return session, follows, self._waits(batch, follows, rows)

    def _waits(self, batch: pa.RecordBatch, follows: Bools, rows: Int64s) -> Int64s:
        wait_ns = np.full(batch.num_rows, UNKNOWN if self._think_ns is None else self._think_ns, np.int64)
        if "think_time_ns" in batch.schema.names:
            column = batch.column("think_time_ns")
            wait_ns = np.where(validity(column), numbers(column), wait_ns)
        unknown = np.flatnonzero(follows & (wait_ns < 0))
        if len(unknown):
            raise TraceError.at(
                self._trace,
                int(rows[unknown[0]]) + 1,
                "think_time_ns",
                None,
                "the think time before this turn is unknown; give the pause for such turns, as in --arrivals "
                "session,think=5s",
            )
        return wait_ns


class _Ties:
    """How many requests arrive at the very time of the one before."""

    def __init__(self) -> None:
        self._rows = 0
        self._ties = 0
        self._first_ns = self._last_ns = 0

    def add(self, arrival_ns: Int64s) -> None:
        """Go on with these rows, of which there is one at least."""
        self._ties += int(np.count_nonzero(arrival_ns[1:] == arrival_ns[:-1]))
        if self._rows:
            self._ties += int(arrival_ns[0] == self._last_ns)
        else:
            self._first_ns = int(arrival_ns[0])
        self._rows += len(arrival_ns)
        self._last_ns = int(arrival_ns[-1])

    @property
    def share(self) -> float:
        """Of the requests that have one before them."""
        return self._ties / (self._rows - 1) if self._rows > 1 else 0.0

    @property
    def are_coarse(self) -> bool:
        """Whether most requests tie, and not because all of them arrive at once."""
        return self.share > 0.5 and self._last_ns > self._first_ns

    @property
    def mean_gap_ns(self) -> int:
        """Between two different times."""
        return (self._last_ns - self._first_ns) // max(self._rows - 1 - self._ties, 1)


def _batch(item: Keyed, arrival_ns: Int64s, first: int) -> ArrivalBatch:
    """Rows of the trace from number ``first`` on, none of which waits for another."""
    batch, count = item.batch, item.batch.num_rows
    output = np.ones(count, np.int64)
    if "output_tokens" in batch.schema.names:
        column = batch.column("output_tokens")
        output = np.where(validity(column), numbers(column).astype(np.int64), output)
    return ArrivalBatch(
        item,
        arrival_ns,
        np.full(count, UNKNOWN, np.int32),
        np.zeros(count, np.int64),
        numbers(batch.column("input_tokens")).astype(np.int64),
        output,
        np.arange(first, first + count),
    )


def _with(batch: ArrivalBatch, **arrays: npt.NDArray[Any]) -> ArrivalBatch:
    return ArrivalBatch(batch.keyed, *(arrays.get(name, getattr(batch, name)) for name in ARRAYS))


def _sorted(batches: Iterable[tuple[ArrivalBatch, int]]) -> Iterator[ArrivalBatch]:
    """The rows of all batches by arrival, those that arrive together in the order of the trace.

    With each batch comes a time that no later row arrives before. Rows wait until half of those that wait
    can go, so that each is moved a few times at most.
    """
    held: list[ArrivalBatch] = []
    for batch, safe_ns in batches:
        held.append(batch)
        ready = sum(int(np.count_nonzero(each.arrival_ns <= safe_ns)) for each in held)
        if 2 * ready < sum(len(each.rows) for each in held):
            continue
        joined = ArrivalBatch.join(held)
        order = np.argsort(joined.arrival_ns, kind="stable")
        yield joined.take(order[:ready])
        held = [joined.take(np.sort(order[ready:]))] if ready < len(order) else []
    if held:
        joined = ArrivalBatch.join(held)
        yield joined.take(np.argsort(joined.arrival_ns, kind="stable"))
