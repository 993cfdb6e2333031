"""The configuration of one tier: a ``--tier`` option, or a ``[[tiers]]`` table of a run file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kvbench.errors import ConfigError
from kvbench.pairs import key_values
from kvbench.plugins import did_you_mean
from kvbench.specs import ParamValue

PartTable = dict[str, ParamValue]
PartChoice = str | PartTable
Capacity = int | str

Scope = Literal["rank", "worker", "host", "cluster"]
SCOPES: tuple[Scope, ...] = ("rank", "worker", "host", "cluster")
"""From the narrowest to the widest set of workers that share a tier's contents, capacity and device."""

MAX_CHUNK = 2**30
MAX_PERIOD_S = 1e9


class TierConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tier of the stack; the first one is the fastest (semantics §6).

    ``name``       any, each once.
    ``capacity``   of each of its stores: blocks (``10k``), tokens (``3Mtok``), bytes (``64GiB``), a
                   share of the trace's distinct blocks (``10%``), or ``infinite``.
    ``scope``      who shares a store: each ``rank`` has its own, or each ``worker``, ``host``, ``cluster``.
    ``policy``     eviction policy; None: lru. ``keep`` never evicts.
    ``device``     what times its reads and writes; None: not timed.
    ``chunk``      blocks of a chunk: the tier stores, evicts and moves so many at once.
    ``write``      computed blocks: ``through``, ``back`` (stored when the tier above evicts them) or
                   ``none``; None: as the placement says.
    ``promotion``  blocks hit below: ``copy``, ``move``, ``none``, or ``temporary`` (room is made for
                   them, and they are not kept); None: as the placement says.
    ``admission``  which blocks may enter.
    ``touch_on``   which blocks count as used: all of a ``request`` that are resident, those that this
                   tier delivered (``hit``), the same when they are looked up (``lookup``), or ``never``.
    ``order``      in which a request is swept; None: as the run's.
    ``spare_own``  a request's own blocks are no victims. If not, room is made for all blocks that this
                   tier did not deliver, resident or not, before any is stored.
    ``fit``        of a request that does not fit, store the ``leading`` blocks, or ``all`` or nothing.
    ``partial``    a request's partial last block needs no room (``free``), or it is held while the request
                   runs; then its place is the ``first`` to be used again (vLLM from 0.23 on), or it keeps it
                   until evicted ``in-turn`` (before). With either, a resident block that is computed again is
                   stored as a copy beside the old one. Timed replay knows ``first`` of the first tier
                   only, and keeps no copies.
    ``high``       watermark, a share of the capacity: nothing is evicted at allocation; a tier that is
                   so full evicts after a request, down to ``low``, or ``ratio`` of what it holds.
    ``low``, ``ratio``  how far; exactly one goes with ``high``.
    ``quotas``     room of each tenant by its name, as a capacity; who has none lives on what is lent. The
                   policy is tenant-lru then.
    ``probes``     0: a request costs one presence test and one read; n: each hit chunk costs n presence
                   tests and a read of its own.
    ``period_s``   at most one such eviction in so many seconds of the trace's clock.
    ``sharing``    timed replay: operations at a time share the device's bandwidth (``fair``), or one comes
                   after the other (``fifo``); None: fair.
    ``path``       links that a transfer passes after the device, by their names, towards the GPU.
    ``transfer``   over several of them it is ``pipelined``, as fast as the slowest, or ``serial``, one after
                   the other; None: pipelined.
    """

    name: str
    capacity: Capacity = "infinite"
    scope: Scope = "worker"
    policy: PartChoice | None = None
    device: PartChoice | None = None
    chunk: int = 1
    write: Literal["through", "back", "none"] | None = None
    promotion: Literal["copy", "move", "none", "temporary"] | None = None
    admission: PartChoice = "all"
    touch_on: Literal["request", "hit", "lookup", "never"] = "request"
    order: Literal["tail-first", "head-first"] | None = None
    spare_own: bool = True
    fit: Literal["leading", "all"] = "leading"
    partial: Literal["free", "first", "in-turn"] = "free"
    high: float | None = None
    low: float | None = None
    ratio: float | None = None
    period_s: float = 0.0
    quotas: dict[str, Capacity] | None = None
    probes: int = 0
    sharing: Literal["fair", "fifo"] | None = None
    path: list[str] | None = None
    transfer: Literal["pipelined", "serial"] | None = None

    @property
    def setting(self) -> str:
        """How error messages call it."""
        return f"tier {self.name}"

    def check(self) -> None:
        """Raise ConfigError for a value out of range, or one that has no effect."""
        if not self.name.strip():
            raise ConfigError("a tier has an empty name")
        for name in ("high", "low", "ratio"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ConfigError(f"{self.setting}: {name} = {value:g} is a share above 0 and at most 1")
            if value is not None and self.capacity == "infinite":
                raise ConfigError(f"{self.setting}: {name} has no effect with infinite capacity; give a capacity")
        if not 1 <= self.chunk <= MAX_CHUNK:
            raise ConfigError(f"{self.setting}: chunk = {self.chunk} must be 1 to {MAX_CHUNK:,} blocks")
        if self.high is None and (self.low is not None or self.ratio is not None or self.period_s):
            raise ConfigError(f"{self.setting}: low, ratio and period_s have no effect without high")
        if self.high is not None and (self.low is None) == (self.ratio is None):
            raise ConfigError(f"{self.setting}: with high goes low or ratio, one of them")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ConfigError(f"{self.setting}: low = {self.low:g} is not below high = {self.high:g}")
        if self.partial != "free" and (self.chunk > 1 or not self.spare_own):
            raise ConfigError(f"{self.setting}: partial = {self.partial} goes with chunks of one block and spare_own")
        if self.probes < 0:
            raise ConfigError(f"{self.setting}: probes = {self.probes} must not be negative")
        if self.quotas is not None and self.policy is not None:
            raise ConfigError(f"{self.setting}: quotas choose the policy, tenant-lru; leave policy out")
        if not 0 <= self.period_s <= MAX_PERIOD_S:
            raise ConfigError(f"{self.setting}: period_s = {self.period_s:g} must be from 0 to {MAX_PERIOD_S:g}")
        if self.capacity == "infinite":
            defaults = TierConfig(name=self.name)
            for name in ("policy", "order", "quotas", "partial", "touch_on", "spare_own", "fit"):
                if getattr(self, name) != getattr(defaults, name):
                    raise ConfigError(
                        f"{self.setting}: {name} has no effect with infinite capacity: nothing is evicted"
                    )


def check_place(tiers: list[TierConfig], at: int, placement: str) -> None:
    """Raise ConfigError for a setting that means nothing where the tier stands in the stack."""
    tier = tiers[at]
    if at == 0 and tier.write == "back":
        raise ConfigError(f"{tier.setting}: write back needs a tier above that evicts")
    if at == len(tiers) - 1 and tier.promotion is not None:
        raise ConfigError(f"{tier.setting}: promotion has no effect in the last tier: nothing is hit below it")
    moves = tier.promotion == "move" or (tier.promotion is None and placement == "exclusive")
    if not tier.spare_own and (tier.fit == "all" or (moves and at < len(tiers) - 1)):
        raise ConfigError(f"{tier.setting}: spare_own = false goes with fit leading, and with no promotion move")
    if placement == "spill":
        _check_spill(tier, last=at == len(tiers) - 1)
    if placement == "spill" and (tier.write is not None or tier.promotion is not None):
        raise ConfigError(f"{tier.setting}: write and promotion have no effect with placement spill")
    if at == 0:
        return
    _check_moves(tiers, at, placement)
    above = tiers[at - 1]
    if tier.chunk % above.chunk:
        raise ConfigError(
            f"{tier.setting}: chunk = {tier.chunk} is no multiple of that of tier {above.name}, {above.chunk}"
        )
    if tier.write == "back" and above.capacity == "infinite":
        raise ConfigError(f"{tier.setting}: write back has no effect below tier {above.name}, which never evicts")


def _check_spill(tier: TierConfig, *, last: bool) -> None:
    """With placement spill only the last tier makes room."""
    if tier.scope == "rank":
        raise ConfigError(f"{tier.setting}: placement spill is for tiers of whole workers, not of scope rank")
    keeps = tier.policy in (None, "keep", {"name": "keep"})
    if not last and not (keeps and tier.order is None and tier.touch_on == "request" and tier.high is None):
        raise ConfigError(
            f"{tier.setting}: policy, order, touch_on and high have no effect with placement spill, where only "
            "the last tier makes room"
        )


def _check_moves(tiers: list[TierConfig], at: int, placement: str) -> None:
    """Tiers that blocks move between have equal chunks, and ranks both or neither."""
    tier = tiers[at]
    exclusive = placement == "exclusive"
    pushers = [tiers[at - 1]] if tier.write == "back" or (tier.write is None and placement != "inclusive") else []
    pullers = [each for each in tiers[:at] if each.promotion == "move" or (each.promotion is None and exclusive)]
    for other in (*pushers, *pullers):
        if tier.chunk != other.chunk:
            raise ConfigError(
                f"{tier.setting}: blocks move from and to tier {other.name}, so chunks must be equal: "
                f"{tier.chunk} and {other.chunk}"
            )
        if (tier.scope == "rank") != (other.scope == "rank"):
            raise ConfigError(
                f"{tier.setting}: blocks move from and to tier {other.name}, so both or none are of scope rank"
            )


def parse_tier(text: str) -> dict[str, Any]:
    """The table of a ``--tier NAME,key=value,…`` option. ``policy.key=value`` sets a parameter of the
    policy; the same goes for ``device`` and ``admission``."""
    name, *pairs = text.split(",")
    if not name.strip() or "=" in name:
        raise ConfigError(f"--tier {text}: begin with the tier's name, as in cpu,capacity=64GiB,policy=lru")
    table: dict[str, Any] = {"name": name.strip()}
    for key, value in key_values(pairs, f"--tier {text}").items():
        part, dot, parameter = key.partition(".")
        if part not in TierConfig.__struct_fields__ or part == "name":
            known = [field for field in TierConfig.__struct_fields__ if field != "name"]
            raise ConfigError(f"--tier {text}: unknown key {part!r}; {did_you_mean(part, known)}")
        if part == "quotas" and not (dot and parameter):
            raise ConfigError(f"--tier {text}: quotas are given tenant by tenant, as in quotas.NAME=10GiB")
        if part == "path" and not dot:
            table[part] = [name.strip() for name in value.split("+")]
            continue
        if not dot:
            table[key] = {**table[key], "name": value} if isinstance(table.get(key), dict) else value
            continue
        if part == "quotas":
            table[part] = {**table.get(part, {}), parameter: value}
            continue
        if part not in ("policy", "device", "admission"):
            raise ConfigError(f"--tier {text}: {part} has no parameters")
        if parameter == "name":
            raise ConfigError(f"--tier {text}: the name of the {part} is given as {part}=NAME")
        chosen = table.get(part, {})
        table[part] = {**(chosen if isinstance(chosen, dict) else {"name": chosen}), parameter: value}
    return table
