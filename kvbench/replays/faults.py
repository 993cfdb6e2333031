"""Fault plans: what goes wrong in which tier, and when (semantics §6.5)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


MAX_SECONDS = 9e9
"""What nanoseconds in 64 bits hold."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault: a ``[[fault]]`` table of the plan.

    ``kind``    ``unhealthy`` (the tier neither answers nor stores), ``get`` or ``put`` (a ``share`` of the
                operations fails), ``freeze`` (nothing is stored, and only the fastest tier is read), or
                ``restart`` (the tier forgets everything; it happens once, at ``from_request`` or ``from_s``).
    ``tier``    its name; not for ``freeze``.
    ``worker``  whose; all workers' if it is left out.
    ``from_request``, ``to_request``  requests of the replay, counted from 0; the last one is excluded.
    ``from_s``, ``to_s``              the same in seconds of the trace's clock; in timed replay, of the simulated one.
    """

    kind: Literal["unhealthy", "get", "put", "freeze", "restart"]
    tier: str | None = None
    worker: int | None = None
    share: float = 1.0
    from_request: int | None = None
    to_request: int | None = None
    from_s: float | None = None
    to_s: float | None = None

    def check(self, where: str, tiers: list[str], workers: int) -> None:
        """Raise ConfigError for a fault that means nothing."""
        if (self.kind == "freeze") != (self.tier is None):
            raise ConfigError(f"{where}: a freeze names no tier, and every other fault names one")
        if self.tier is not None and self.tier not in tiers:
            raise ConfigError(f"{where}: no tier is called {self.tier!r}; {did_you_mean(self.tier, tiers)}")
        if self.worker is not None and not 0 <= self.worker < workers:
            raise ConfigError(f"{where}: worker = {self.worker}; workers are 0 to {workers - 1}")
        if not 0 < self.share <= 1:
            raise ConfigError(f"{where}: share = {self.share:g} is not above 0 and at most 1")
        if self.share != 1 and self.kind not in ("get", "put"):
            raise ConfigError(f"{where}: share has no effect on kind {self.kind}")
        if self.kind == "restart" and (
            (self.from_request is None) == (self.from_s is None) or self.to_request is not None or self.to_s is not None
        ):
            raise ConfigError(f"{where}: a restart happens at from_request or from_s, one of them, and has no end")
        by_request = self.from_request is not None or self.to_request is not None
        by_time = self.from_s is not None or self.to_s is not None
        if by_request and by_time:
            raise ConfigError(f"{where}: give requests or seconds, not both")
        for name in ("from_s", "to_s"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds <= MAX_SECONDS:
                raise ConfigError(f"{where}: {name} = {seconds:g} must be from 0 to {MAX_SECONDS:g}")
        for low, high in ((self.from_request, self.to_request), (self.from_s, self.to_s)):
            if (low is not None and low < 0) or (high is not None and high <= (low or 0)):
                raise ConfigError(f"{where}: it ends before it begins")

    @property
    def start_ns(self) -> int | None:
        """When it begins, where seconds say so."""
        return _ns(self.from_s)

    @property
    def end_ns(self) -> int | None:
        """When it ends, where seconds say so."""
        return _ns(self.to_s)

    def active(self, request: int, time_ns: int) -> bool:
        """Whether it is in force for a request."""
        for value, low, high in (
            (request, self.from_request, self.to_request),
            (time_ns, self.start_ns, self.end_ns),
        ):
            if (low is not None and value < low) or (high is not None and value >= high):
                return False
        return True

    def hits(self, tier: str, first: int, group: int) -> bool:
        """Whether it is about the store of ``tier`` that workers ``first`` … ``first + group - 1`` share."""
        return self.tier == tier and (self.worker is None or first <= self.worker < first + group)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: list[Fault]


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults of a run."""

    faults: tuple[Fault, ...] = ()

    def edges(self, batch: pa.RecordBatch, first: int) -> list[int]:
        """Positions in a batch, whose first request is number ``first``, where something begins or ends."""
        found: set[int] = set()
        for fault in self.faults:
            for request in (fault.from_request, fault.to_request):
                if request is not None and first < request < first + batch.num_rows:
                    found.add(request - first)
            for seconds in (fault.from_s, fault.to_s):
                time_ns = _ns(seconds)
                if time_ns is not None:
                    found.add(int(np.argmax(np.append(numbers(batch.column("arrival_ns")) >= time_ns, True))))
        return sorted(at for at in found if 0 < at < batch.num_rows)


def read_faults(path: Path, tiers: list[str], workers: int) -> FaultPlan:
    """Read a fault plan. Raises ConfigError, naming the file and the fault, for a bad one."""
    try:
        plan = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not plan.fault:
        raise ConfigError(f"{path}: no fault in it; write each as a table [[fault]]")
    for at, fault in enumerate(plan.fault, 1):
        fault.check(f"{path}: fault {at}", tiers, workers)
    return FaultPlan(tuple(plan.fault))
