"""The configuration of what routers know: options of ``kvbench replay``, or tables of a run file.

A *lag* is a number of requests (``100``), or a time of the trace's clock (``50ms``, ``30s``). 0 means
at once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kvbench.errors import ConfigError
from kvbench.tables import TableKind
from kvbench.units import Lag, parse_lag

LagText = int | str

MAX_ROUTERS = 1024
MAX_LAG = 2**60
MAX_BATCH = 2**31

APPROXIMATE_TTL = "120s"
"""Dynamo's router without KV events."""

PREDICTIVE_TTL = "2s"
"""llm-d's speculative entries."""


class IndexConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a router's index learns who holds what (semantics §8.1).

    ``mode``      ``events`` of the workers; ``approximate``: its own decisions, nothing else;
                  ``predictive``: both; ``oracle``: it knows all.
    ``ttl``       lag after which a decision is forgotten, or ``never``; None: 120s where there are no events, else 2s.
    ``capacity``  or forgotten as an LRU cache of so many blocks of each worker would.
    ``copies``    a worker may hold a block several times: ``set`` (one removal ends all) or ``count``.
    """

    mode: Literal["events", "approximate", "predictive", "oracle"] = "events"
    ttl: LagText | None = None
    capacity: int | str | None = None
    copies: Literal["set", "count"] = "set"

    @property
    def predicts(self) -> bool:
        """Whether it learns from the router's decisions."""
        return self.mode in ("approximate", "predictive")

    @property
    def hears_events(self) -> bool:
        """Whether it learns from what workers send."""
        return self.mode in ("events", "predictive")

    @property
    def lifetime(self) -> LagText:
        """``ttl``, or its default."""
        return self.ttl if self.ttl is not None else APPROXIMATE_TTL if self.mode == "approximate" else PREDICTIVE_TTL

    def check(self) -> None:
        """Raise ConfigError for a setting that is out of range or has no effect."""
        for name in ("ttl", "capacity"):
            if getattr(self, name) is not None and not self.predicts:
                raise ConfigError(f"--index {self.mode}: {name} goes with approximate or predictive")
        if self.ttl is not None and self.capacity is not None:
            raise ConfigError(f"--index {self.mode}: ttl and capacity both say what is forgotten; give one of them")
        if self.ttl is not None and _check_lag(self.ttl, f"--index {self.mode}: ttl", may_be_never=True).length == 0:
            raise ConfigError(f"--index {self.mode}: ttl = {self.ttl} keeps nothing")
        if self.copies == "count" and self.mode in ("approximate", "oracle"):
            raise ConfigError(f"--index {self.mode}: copies has no effect without events")


class ChannelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How events reach the index (semantics §8.3).

    ``coalesce``     lag for which a worker collects events before it sends them as one message.
    ``delay``        lag of a message.
    ``batch``        events that the router reads in a cycle; 0: all there are.
    ``cycle``        lag between two looks at what has arrived; 0: one before each request.
    ``loss``, ``duplication``, ``reorder``  shares of messages that are lost, come twice, or are overtaken
                     by the worker's next one.
    """

    coalesce: LagText = 0
    delay: LagText = 0
    batch: int = 0
    cycle: LagText = 0
    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0

    @property
    def is_ideal(self) -> bool:
        """Whether the index hears of everything at once."""
        lags = any(parse_lag(lag).length for lag in (self.coalesce, self.delay, self.cycle))
        return not (lags or self.batch or self.loss or self.duplication or self.reorder)

    def check(self) -> None:
        """Raise ConfigError for a setting that is out of range."""
        for name in ("coalesce", "delay", "cycle"):
            _check_lag(getattr(self, name), f"--event-channel: {name}")
        if not 0 <= self.batch <= MAX_BATCH:
            raise ConfigError(f"--event-channel: batch = {self.batch} must be from 0 to {MAX_BATCH:,}")
        for name in ("loss", "duplication", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"--event-channel: {name} = {getattr(self, name):g} must be a share from 0 to 1")


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What load is in order replay, and how old its figures are (semantics §8.3).

    ``window``         lag for which a request is in flight in order replay; None: 8 requests a worker.
    ``prefill_share``  of the window, for which it waits and is prefilled.
    ``period``         lag between two publications of the workers' figures.
    ``sync``           lag after which routers hear of each other's requests; None: ``never``.
    """

    window: LagText | None = None
    prefill_share: float = 0.25
    period: LagText = 0
    sync: LagText | None = None

    def check(self, routers: int, *, timed: bool = False) -> None:
        """Raise ConfigError for a setting that is out of range or has no effect; ``timed`` replay knows when
        requests end."""
        for name in ("window", "period", "sync"):
            if getattr(self, name) is not None:
                _check_lag(getattr(self, name), f"--load: {name}", may_be_never=name == "sync")
        if not 0 <= self.prefill_share <= 1:
            raise ConfigError(f"--load: prefill_share = {self.prefill_share:g} must be a share from 0 to 1")
        for name in ("window", "prefill_share"):
            if timed and getattr(self, name) != getattr(LoadConfig(), name):
                raise ConfigError(f"--load: {name} has no effect with --compute, which says when requests end")
        if self.sync is not None and routers == 1:
            raise ConfigError("--load: sync has no effect with one router; give --routers")


def _check_lag(lag: LagText, setting: str, *, may_be_never: bool = False) -> Lag:
    try:
        found = parse_lag(lag)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None
    if found.length is None and not may_be_never:
        raise ConfigError(f"{setting} = {lag} must be a number of requests, or a time")
    if found.length is not None and found.length > MAX_LAG:
        raise ConfigError(f"{setting} = {lag} is out of range")
    return found


ROUTING_TABLES = {
    "index": TableKind(IndexConfig, first="mode"),
    "event_channel": TableKind(ChannelConfig),
    "load": TableKind(LoadConfig),
}
"""Settings that are tables of a run file."""


def check_routing(
    routers: int | None,
    index: IndexConfig | None,
    channel: ChannelConfig | None,
    load: LoadConfig | None,
    *,
    timed: bool = False,
) -> None:
    """Raise ConfigError for a setting that is out of range or has no effect beside the others, or in ``timed``
    replay."""
    if routers is not None and not 1 <= routers <= MAX_ROUTERS:
        raise ConfigError(f"--routers = {routers} must be from 1 to {MAX_ROUTERS:,}")
    if index is not None:
        index.check()
    if channel is not None:
        channel.check()
        if index is not None and not index.hears_events:
            raise ConfigError(f"--event-channel has no effect with --index {index.mode}, which hears no events")
    if load is not None:
        load.check(routers or 1, timed=timed)
