"""The configuration of timed replay: options of ``kvbench replay``, or tables of a run file.

A *time* is a number with its unit (``500ms``, ``1.5s``, ``2min``), of the simulated clock, which
starts at the first arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import msgspec

from kvbench.errors import ConfigError
from kvbench.tables import TableKind
from kvbench.units import (
    COUNT_UNITS,
    DURATION_UNITS,
    parse_count,
    parse_duration,
    split_quantity,
    unknown_unit,
)

TimeText = int | float | str
"""A time as it is given; a bare number is accepted by the type to be refused with a reason."""

MAX_TIME_NS = 2**60
MAX_COUNT = 2**31 - 1
MIN_RATE, MAX_RATE = 1e-6, 1e6
MAX_SEEDS = 1_000
MAX_GB_PER_S = 1e9
MIN_GB_PER_S = 1e-9
MAX_LATENCY_US = 1e9


def time_ns(value: TimeText | None, setting: str, *, positive: bool = False) -> int | None:
    """A time in nanoseconds, None for None. Raises ConfigError, which begins with ``setting``."""
    if value is None:
        return None
    try:
        found = parse_duration(str(value))
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None
    if found > MAX_TIME_NS:
        raise ConfigError(f"{setting} = {value} is out of range")
    if positive and found == 0:
        raise ConfigError(f"{setting} = {value} must be above 0")
    return found


def _check_range(value: float | None, least: float, most: float, setting: str) -> None:
    if value is not None and not least <= value <= most:
        bounds = [f"{bound:,}" if isinstance(bound, int) else f"{bound:,.12g}" for bound in (least, most)]
        raise ConfigError(f"{setting} = {value:,.12g} must be from {bounds[0]} to {bounds[1]}")


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a worker serves requests (semantics §9.2, §9.3).

    ``batch_tokens``  tokens of a step, those of decoding requests included.
    ``sequences``     requests of a step.
    ``fetches``       requests that fetch, or have fetched and not started; 0: any number.
    ``chunked``       a prompt may be computed in several steps; if not, in one, which may pass
                      ``batch_tokens`` when it is alone.
    ``share``         a request whose next missing block another one of the worker is computing waits for it.
    ``load``          what lower tiers hold is fetched ``always``, or where that is ``cheaper`` than computing it.
    ``step_overhead``  time added to every step.
    ``rebuild``       time added to a step whose requests differ from those of the step before.
    ``store``         writes to lower tiers are ``async``; or ``blocking``: the end of a request waits for
                      them, its blocks held.
    ``preempt``       who gives way when the GPU is full: the request that was admitted ``latest``.
    ``decode``        answers are generated; if not, requests end with their first token.
    """

    batch_tokens: int = 8192
    sequences: int = 256
    fetches: int = 8
    chunked: bool = True
    share: bool = False
    load: Literal["always", "cheaper"] = "always"
    step_overhead: TimeText = "0s"
    rebuild: TimeText = "0s"
    store: Literal["async", "blocking"] = "async"
    preempt: Literal["latest"] = "latest"
    decode: bool = True

    def check(self) -> None:
        """Raise ConfigError for a setting that is out of range."""
        _check_range(self.batch_tokens, 1, MAX_COUNT, "--worker: batch_tokens")
        _check_range(self.sequences, 1, MAX_COUNT, "--worker: sequences")
        _check_range(self.fetches, 0, MAX_COUNT, "--worker: fetches")
        for name in ("step_overhead", "rebuild"):
            time_ns(getattr(self, name), f"--worker: {name}")


class ArrivalsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When requests arrive (semantics §9.1).

    ``mode``         as the ``trace`` says; the next turn of a ``session`` when the one before has ended and
                     its pause is over; or ``concurrency``: the next request when one has ended.
    ``rate``         gaps between arrivals are divided by it, counted from the first arrival. Pauses of
                     sessions stay.
    ``jitter``       each arrival comes later by a random time below this, for timestamps that are coarse.
    ``concurrency``  requests in flight with mode ``concurrency``.
    ``think``        pause of a session before a turn, where the trace has no ``think_time_ns``.
    """

    mode: Literal["trace", "session", "concurrency"] = "trace"
    rate: float = 1.0
    jitter: TimeText = "0s"
    concurrency: int | None = None
    think: TimeText | None = None

    def check(self) -> None:
        """Raise ConfigError for a setting that is out of range or has no effect."""
        _check_range(self.rate, MIN_RATE, MAX_RATE, "--arrivals: rate")
        jitter_ns = time_ns(self.jitter, "--arrivals: jitter")
        time_ns(self.think, "--arrivals: think")
        if self.think is not None and self.mode != "session":
            raise ConfigError(f"--arrivals {self.mode}: think has no effect; it goes with mode session")
        if self.mode != "concurrency" and self.concurrency is not None:
            raise ConfigError(f"--arrivals {self.mode}: concurrency has no effect; it goes with mode concurrency")
        if self.mode != "concurrency":
            return
        if self.concurrency is None:
            raise ConfigError("--arrivals concurrency: say how many, as in concurrency,concurrency=32")
        _check_range(self.concurrency, 1, MAX_COUNT, "--arrivals: concurrency")
        if self.rate != 1 or jitter_ns:
            raise ConfigError("--arrivals concurrency: rate and jitter have no effect; the trace's times are not used")


class SloConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits that a request of goodput keeps, all of them; they are times with units.

    ``ttft``  to the first token, from the intended arrival.
    ``tpot``  of each token after the first, on average.
    ``e2e``   to the last token, from the intended arrival.
    """

    ttft: TimeText | None = None
    tpot: TimeText | None = None
    e2e: TimeText | None = None

    def check(self) -> None:
        """Raise ConfigError for a limit that is no time, and for none at all."""
        limits = [time_ns(getattr(self, name), f"--slo: {name}", positive=True) for name in self.__struct_fields__]
        if all(limit is None for limit in limits):
            raise ConfigError(f"--slo names no limit; give {', '.join(self.__struct_fields__)}, as in ttft=500ms")


class StopConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a run ends before the trace does.

    ``time``       after this time of the simulated clock.
    ``rows``       after so many rows of the trace.
    ``converged``  when the 95 % confidence interval of the mean TTFT (by batch means) is narrower than this
                   share of it.
    ``stall_steps``  steps of a worker without a token after which a run is given up, with a diagnosis.
    """

    time: TimeText | None = None
    rows: int | None = None
    converged: float | None = None
    stall_steps: int = 1_000_000

    def check(self) -> None:
        """Raise ConfigError for a setting that is out of range."""
        time_ns(self.time, "--stop: time", positive=True)
        _check_range(self.rows, 1, MAX_TIME_NS, "--stop: rows")
        if self.converged is not None and not 0 < self.converged < 1:
            raise ConfigError(f"--stop: converged = {self.converged:g} must be a share above 0 and below 1")
        _check_range(self.stall_steps, 1, MAX_TIME_NS, "--stop: stall_steps")


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests count in figures; all of them fill the cache.

    ``warmup``  left out at the start: rows (``1000``), a time (``60s``) or a share of the rows (``10%``).
    ``start``, ``end``  times of the simulated clock: requests that arrive from ``start`` on and before
                ``end`` count.
    """

    warmup: TimeText | None = None
    start: TimeText | None = None
    end: TimeText | None = None

    def check(self) -> None:
        """Raise ConfigError for a setting that is out of range, and for a window that is empty."""
        if self.warmup is not None:
            parse_warmup(self.warmup)
        start_ns = time_ns(self.start, "--window: start") or 0
        end_ns = time_ns(self.end, "--window: end", positive=True)
        if end_ns is not None and end_ns <= start_ns:
            raise ConfigError(f"--window: end = {self.end} is not after start = {self.start}")


@dataclass(frozen=True, slots=True)
class Warmup:
    """What is left out at the start: rows, a time, or a share of the rows."""

    rows: int = 0
    ns: int = 0
    share: Fraction = Fraction(0)


def parse_warmup(value: TimeText) -> Warmup:
    """The warm-up of a window. Raises ConfigError for what is neither rows, a time nor a share."""
    setting, text = "--window: warmup", str(value)
    try:
        number, unit = split_quantity(text)
        if unit in COUNT_UNITS:
            return Warmup(rows=parse_count(text))
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None
    if unit == "%":
        if number >= 100:
            raise ConfigError(f"{setting} = {text} leaves nothing over; a share is below 100 %")
        return Warmup(share=number / 100)
    if unit in DURATION_UNITS:
        return Warmup(ns=time_ns(text, setting) or 0)
    raise ConfigError(f"{setting} = {text}: {unknown_unit(unit, (*COUNT_UNITS, *DURATION_UNITS, '%'))}")


class LinkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link that transfers of tiers pass (``path`` of a tier names it), beside the tiers' own devices.

    ``name``           any, each once.
    ``read_gb_per_s``  bandwidth towards the GPU, 10⁹ bytes/s.
    ``write_gb_per_s``  away from it; None: as ``read_gb_per_s``.
    ``read_latency_us``  of each operation.
    ``write_latency_us``  of each operation; None: as ``read_latency_us``.
    ``concurrent_operations``  of each direction at a time; None: any number.
    ``scope``          who shares it: each ``worker`` has its own, or each ``host``, or the ``cluster`` has one.
    ``sharing``        operations at a time share the bandwidth (``fair``), or one comes after the other (``fifo``).
    """

    name: str
    read_gb_per_s: float
    write_gb_per_s: float | None = None
    read_latency_us: float = 0.0
    write_latency_us: float | None = None
    concurrent_operations: int | None = None
    scope: Literal["worker", "host", "cluster"] = "worker"
    sharing: Literal["fair", "fifo"] = "fair"

    @property
    def setting(self) -> str:
        """How error messages call it."""
        return f"link {self.name}"

    def check(self) -> None:
        """Raise ConfigError for a setting that is out of range."""
        if not self.name.strip() or any(sign in self.name for sign in "+,="):
            raise ConfigError(f"a link is called {self.name!r}; a name is text without +, commas and =")
        for name in ("read_gb_per_s", "write_gb_per_s"):
            _check_range(getattr(self, name), MIN_GB_PER_S, MAX_GB_PER_S, f"{self.setting}: {name}")
        for name in ("read_latency_us", "write_latency_us"):
            _check_range(getattr(self, name), 0, MAX_LATENCY_US, f"{self.setting}: {name}")
        _check_range(self.concurrent_operations, 1, MAX_COUNT, f"{self.setting}: concurrent_operations")


SERVING_TABLES = {
    "worker": TableKind(WorkerConfig),
    "arrivals": TableKind(ArrivalsConfig, first="mode"),
    "slo": TableKind(SloConfig),
    "stop": TableKind(StopConfig),
    "window": TableKind(WindowConfig),
}
"""Settings of timed replay that are tables of a run file."""

LINK = TableKind(LinkConfig, first="name")
"""One of ``links``."""
