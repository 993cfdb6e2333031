"""The figures of a timed replay, added up batch by batch: the ``timed`` part of a summary."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.replays.confidence import converged
from kvbench.replays.timecolumns import DONE, MISSING, REJECTED, STATUSES, UNFINISHED
from kvbench.results.goodput import Goodput
from kvbench.results.latency import LATENCIES, Latencies, times_by_name
from kvbench.results.percentiles import distribution, exact_sum
from kvbench.results.rates import ratio
from kvbench.results.throughput import Throughput, Work
from kvbench.results.utilisation import link_records, worker_records
from kvbench.results.verdict import Verdict, judge
from kvbench.results.window import Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from kvbench.replays.timedfacts import RunFacts
    from kvbench.results.columns import RequestColumns

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

REJECTED_EXAMPLES = 3
KEPT = ("arrival_ns", "queue_ns", "fetch_ns", "prefill_ns", "e2e_ns", "tpot_ns")


class Series:
    """Values that come in pieces."""

    def __init__(self, kind: type = np.int64) -> None:
        self._pieces: list[npt.NDArray[Any]] = [np.zeros(0, kind)]

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add a piece, which is copied."""
        self._pieces.append(np.array(values))

    def values(self) -> npt.NDArray[Any]:
        """All of them."""
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]


class TimedTotals:
    """Everything that a timed replay's summary is made of.

    ``window``  which requests count.
    ``slo``     limits in nanoseconds of any of ``ttft``, ``tpot`` and ``e2e``.
    ``method``  of the percentiles, see :data:`kvbench.results.percentiles.METHODS`.

    Percentiles are exact, so the latencies of all requests that count are kept: 48 bytes each (16 of one that is
    unfinished), the one part of a replay whose memory grows with the trace.
    """

    def __init__(
        self, window: Window | None = None, slo: Mapping[str, int] | None = None, *, method: str = "linear"
    ) -> None:
        self.window = window if window is not None else Window()
        self._method = method
        self._goodput = Goodput(slo or {})
        self._seen = np.zeros(len(STATUSES), np.int64)
        self._counted = np.zeros(len(STATUSES), np.int64)
        self._done = {name: Series(np.float64 if name == "tpot_ns" else np.int64) for name in KEPT}
        self._unfinished = {name: Series() for name in ("arrival_ns", "queue_ns")}
        self._decode_ns = self._gaps = 0
        self._work = Work()
        self._throughput = Throughput()
        self._in_window = Throughput()
        self._first_arrival_ns: int | None = None
        self._rejected: list[dict[str, int]] = []

    @property
    def statuses(self) -> dict[str, int]:
        """Requests by what became of them, those that do not count included."""
        return dict(zip(STATUSES, self._seen.tolist(), strict=True))

    def rejected_examples(self, gpu_blocks: int | None) -> list[str]:
        """Sentences on the first prompts that could never fit into the ``gpu_blocks`` of a worker."""
        room = "" if gpu_blocks is None else f", and a worker has {gpu_blocks:,}"
        return [f"request {each['request']} needs {each['need_blocks']:,} GPU blocks{room}" for each in self._rejected]

    def add(self, columns: RequestColumns, times: Int64s, numbers: Int64s) -> Bools:
        """Take in a batch and its matrix of times; ``numbers`` of its requests are from 0.

        Returns which of its requests hit rates are of: those that count and were looked up.
        """
        named = times_by_name(times)
        status, arrival = named["status"], named["arrival_ns"]
        if len(arrival):
            earliest = int(arrival.min())
            before = self._first_arrival_ns
            self._first_arrival_ns = earliest if before is None else min(before, earliest)
        counted = self.window.counted(numbers, arrival)
        self._seen += np.bincount(status, minlength=len(STATUSES))
        self._counted += np.bincount(status[counted], minlength=len(STATUSES))
        self._add_done(columns, times, counted & (status == DONE))
        left = counted & (status == UNFINISHED)
        self._unfinished["arrival_ns"].add(arrival[left])
        self._unfinished["queue_ns"].add(_waits({name: values[left] for name, values in named.items()}))
        for row in np.flatnonzero(status == REJECTED)[: REJECTED_EXAMPLES - len(self._rejected)].tolist():
            self._rejected.append({"request": int(numbers[row]), "need_blocks": int(named["need_blocks"][row])})
        self._in_window.add(columns, times, (status == DONE) & self.window.holds(named["end_ns"]))
        self._work.add(columns, times, counted)
        return counted & (named["admitted_ns"] >= 0)

    def converged(self, share: float) -> bool:
        """Whether the mean TTFT of the requests so far is known to ``share`` of itself, see
        :func:`kvbench.replays.confidence.converged`."""
        return converged(self._ttft_ns(), share)

    def record(self, facts: RunFacts) -> dict[str, Any]:
        """All figures of the finished run."""
        counted = dict(zip(STATUSES, self._counted.tolist(), strict=True))
        arrived, done = sum(counted.values()), counted["done"]
        run_ns = max(facts.end_ns - (self._first_arrival_ns or 0), 0)
        latencies = self._latencies()
        return {
            "run": {
                "first_arrival_ns": self._first_arrival_ns,
                "end_ns": facts.end_ns,
                "duration_ns": run_ns,
                "stop": facts.stop,
                "diagnosis": facts.diagnosis,
                "lost_writes": facts.lost_writes,
            },
            "window": self.window.to_dict(),
            "requests": {"arrived": arrived, **counted, "not_counted": int(self._seen.sum()) - arrived},
            "percentile_method": self._method,
            **{f"{name}_ns": latencies[name] for name in LATENCIES},
            "itl_ns": {"n": self._gaps, "mean": ratio(self._decode_ns, self._gaps)},
            "ttft_shares": self._shares(),
            "goodput": self._goodput.record(done, arrived, self._throughput.duration_ns),
            "throughput": self._throughput.record(self._throughput.duration_ns),
            "window_throughput": self._window_record(),
            "work": self._work.record(),
            **worker_records(facts.workers, run_ns),
            "links": link_records(facts.links, run_ns),
            "verdict": dataclasses.asdict(self._verdict(facts.end_ns)),
        }

    def _add_done(self, columns: RequestColumns, times: Int64s, rows: Bools) -> None:
        found = Latencies.of(times[rows])
        self._goodput.add(found)
        self._decode_ns += int(found.decode_ns[found.gaps > 0].sum())
        self._gaps += int(found.gaps.sum())
        self._throughput.add(columns, times, rows)
        for name, series in self._done.items():
            series.add(times[rows, 0] if name == "arrival_ns" else getattr(found, name))

    def _ttft_ns(self) -> Int64s:
        parts = [self._done[name].values() for name in ("queue_ns", "fetch_ns", "prefill_ns")]
        total: Int64s = parts[0] + parts[1] + parts[2]
        return total

    def _latencies(self) -> dict[str, Any]:
        figures = {"ttft": distribution(self._ttft_ns(), method=self._method)}
        for name in LATENCIES:
            if name != "ttft":
                values = self._done[f"{name}_ns"].values()
                known = values[~np.isnan(values)] if name == "tpot" else values
                figures[name] = distribution(known, missing=len(values) - len(known), method=self._method)
        return figures

    def _shares(self) -> dict[str, float | None]:
        sums = {name: exact_sum(self._done[f"{name}_ns"].values()) for name in ("queue", "fetch", "prefill")}
        return {name: ratio(value, sum(sums.values())) for name, value in sums.items()}

    def _window_record(self) -> dict[str, Any] | None:
        """What ended within the window, whenever it arrived; None where the window does not bound the time."""
        if not self.window.has_times:
            return None
        start, end = self.window.start_ns, self.window.end_ns
        first = self._in_window.first_arrival_ns if start is None else start
        last = self._in_window.last_end_ns if end is None else end
        return self._in_window.record(None if first is None or last is None else max(last - first, 0))

    def _verdict(self, end_ns: int) -> Verdict:
        done, left = self._done, {name: series.values() for name, series in self._unfinished.items()}
        so_far = np.maximum(end_ns - left["arrival_ns"], 0)
        waits = np.where(left["queue_ns"] == MISSING, so_far, left["queue_ns"])
        count = len(done["queue_ns"].values())
        rest = exact_sum(done["fetch_ns"].values()) + exact_sum(done["prefill_ns"].values())
        return judge(
            np.concatenate([done["arrival_ns"].values(), left["arrival_ns"]]),
            np.concatenate([done["queue_ns"].values(), waits]),
            ratio(rest, count),
        )


def _waits(unfinished: Mapping[str, Int64s]) -> Int64s:
    """How long unfinished requests waited; -1 for those that still do."""
    until_step = unfinished["prefill_start_ns"] - unfinished["arrival_ns"]
    started = np.where(unfinished["prefill_start_ns"] >= 0, until_step, MISSING)
    return np.where(unfinished["queue_ns"] >= 0, unfinished["queue_ns"], started)
