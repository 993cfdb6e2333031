"""Moves arrivals: another rate, repeats one after another, another start. Exact, in whole nanoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.trace.columns import numbers
from kvbench.units import MAX_NS

if TYPE_CHECKING:
    from fractions import Fraction

    from kvbench.trace.columns import Int64s


class Clock:
    """Every arrival is found from the first one, so that no rounding adds up.

    ``rate``      offsets from the first arrival, and think times, are divided by it.
    ``start_ns``  when the first row arrives; None leaves it as it was.
    """

    def __init__(self, rate: Fraction, start_ns: int | None) -> None:
        self._rate = rate
        self._start_ns = start_ns
        self._first_ns: int | None = None
        self._offset_ns = 0
        self._rows = 0
        self._span_ns = 0

    def moved(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The next ``batch`` of the copy, its times moved."""
        arrivals = numbers(batch.column("arrival_ns"))
        if self._first_ns is None:
            self._first_ns = int(arrivals[0])
        start = self._first_ns if self._start_ns is None else self._start_ns
        offsets = self._scaled(arrivals - self._first_ns)
        self._rows += len(offsets)
        self._span_ns = int(offsets[-1])
        shift = start + self._offset_ns
        if self._span_ns + shift >= MAX_NS:
            raise ConfigError(
                "the last arrivals are more than 292 years after the origin, and times are 64-bit nanoseconds; "
                "raise --scale-rate, or lower --repeat or --start"
            )
        replaced = {"arrival_ns": pa.array(offsets + shift)}
        if "think_time_ns" in batch.schema.names:
            column = batch.column("think_time_ns")
            mask = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
            replaced["think_time_ns"] = pa.array(self._scaled(numbers(column)), mask=mask)
        columns = [replaced.get(name, batch.column(name)) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def next_copy(self) -> None:
        """The rows that follow are the same ones again, one mean gap after the last."""
        gaps = max(1, self._rows - 1)
        self._offset_ns += self._span_ns + round(self._span_ns / gaps)
        self._rows = 0

    def _scaled(self, times: Int64s) -> Int64s:
        """``times`` divided by the rate, to the nearest nanosecond."""
        up, down = self._rate.denominator, self._rate.numerator
        if up == down:
            return times
        if int(np.abs(times).max(initial=0)) * 2 * up + down < MAX_NS:
            return (times * (2 * up) + down) // (2 * down)
        exact = [(time * 2 * up + down) // (2 * down) for time in times.tolist()]
        return np.array([min(time, MAX_NS) for time in exact], np.int64)
