"""The run configuration: TOML or options in, one frozen structure out.

Every key of a TOML run file is an option of ``kvbench replay`` with dashes for underscores, and
the other way round; options override the file.
"""

from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kvbench.atomic import same_file
from kvbench.errors import ConfigError
from kvbench.pairs import key_values
from kvbench.plugins import did_you_mean
from kvbench.presets import with_preset
from kvbench.routeconfig import ROUTING_TABLES, ChannelConfig, IndexConfig, LoadConfig, check_routing
from kvbench.servechecks import check_clock, check_transfers
from kvbench.serveconfig import (
    LINK,
    SERVING_TABLES,
    ArrivalsConfig,
    LinkConfig,
    SloConfig,
    StopConfig,
    TimeText,
    WindowConfig,
    WorkerConfig,
)
from kvbench.tables import as_table, option_of, typed_tables, without_none
from kvbench.tierconfig import SCOPES, Capacity, PartChoice, TierConfig, check_place, parse_tier
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    from kvbench.specs import ParamValue

NOT_PART_OF_RESULT = ("trace", "output", "events", "timeline", "force")
"""Keys that say where files are; they stay out of a result's manifest."""

TABLES = {**ROUTING_TABLES, **SERVING_TABLES}
"""Settings that are tables of a run file."""

Tails = Literal["drop", "keep"]
"""What becomes of a partial last block."""

GPU = "gpu"
"""The tier that ``capacity`` and ``policy`` of a timed replay speak of."""

MAX_RETRIES = 1_000
MAX_TIERS = 64


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a replay.

    ``trace``         the trace to replay (``-``: an Arrow stream on standard input).
    ``block_tokens``  tokens of a block, instead of what the file says.
    ``tail_rule``     whether a partial last block has an id: ``ceil`` or ``floor``.
    ``id_kind``       what a block id stands for, instead of what the file says: ``prefix`` or ``content``.
    ``id_scope``      where it means the same: ``file``, ``session`` or ``global``.
    ``block_bytes``   bytes of a full block, for capacities and figures in bytes.
    ``tokens``        token database; None: by the columns of the trace.
    ``tails``         ``drop``: only full blocks are cacheable; ``keep``: a partial one, too.
    ``shared_blocks``  leading blocks of each prompt (a system prompt) that all tenants share; what
                      follows stays each tenant's own.
    ``workers``       engine replicas, each with a cache of its own.
    ``router``        who serves a request; None: max-prefix if there are several workers. Several: one cell each.
    ``routers``       routers in front of the workers, each with a view of its own; requests go to them in turn.
    ``index``         how a router knows who holds what (see :class:`~kvbench.routeconfig.IndexConfig`).
    ``event_channel``  how events reach its index (see :class:`~kvbench.routeconfig.ChannelConfig`).
    ``load``          what it knows of the workers' load (see :class:`~kvbench.routeconfig.LoadConfig`).
    ``capacity``      of each worker: blocks (``10k``), bytes (``64GiB``), a share of the trace's
                      distinct blocks (``10%``), or ``infinite``. Several: one cell each.
    ``policy``        eviction policy; None: lru, unless the capacity is infinite. Several: one cell each.
    ``order``         how a request is swept (semantics §5.1).
    ``belady``        the Belady bound beside the result: ``auto``, ``on`` or ``off``.
    ``recompute``     of a fully cached prompt: ``none`` (a hit is a hit), one ``token``, or its last ``block``.
    ``store_output``  store the blocks that an answer fills, too, once its request is served.
    ``seen``          the set of keys ever seen: ``exact`` or ``off``.
    ``seed``          of every random choice.
    ``on_error``      a bad row is an error (``fail``) or left out and counted (``skip``).
    ``tiers``         a stack of tiers instead of one cache a worker (see
                      :class:`~kvbench.tierconfig.TierConfig`); ``capacity`` and ``policy`` are theirs then.
    ``placement``     ``inclusive`` (tiers write through, hits are copied up), ``exclusive`` (a hit moves
                      up, an eviction moves down) or ``spill`` (computed blocks go to the first tier with room).
    ``walk``          ``any``: a prefix may change tiers at will; ``once``: each tier is visited once, in order.
    ``workers_per_host``  workers that share a tier of scope ``host``.
    ``tp``            tensor-parallel ranks of a worker.
    ``model``         preset or config.json that says how large KV is, instead of ``block_bytes``.
    ``kv_dtype``      of the stored KV, instead of the model's.
    ``models``        a file with more model presets.
    ``save_only_first_rank``  ranks that hold the same KV (MLA) store it once below the GPU.
    ``devices``       a file with more device presets.
    ``prefill_tokens_per_s``  of a worker: says from how many tokens on a tier's load beats recomputing.
    ``faults``        a fault plan (TOML).
    ``retries``       how often a failing get or put is tried again.
    ``compute``       compute model: makes this a timed replay, on a clock; None: requests are served one after
                      another, in no time.
    ``worker``        how a worker serves (see :class:`~kvbench.serveconfig.WorkerConfig`).
    ``arrivals``      when requests arrive (see :class:`~kvbench.serveconfig.ArrivalsConfig`).
    ``slo``           limits of goodput (see :class:`~kvbench.serveconfig.SloConfig`).
    ``stop``          when a run ends before its trace (see :class:`~kvbench.serveconfig.StopConfig`).
    ``window``        which requests count in figures (see :class:`~kvbench.serveconfig.WindowConfig`).
    ``links``         what transfers pass beside the tiers' devices (see :class:`~kvbench.serveconfig.LinkConfig`).
    ``seeds``         runs with seeds from ``seed`` on; above 1, figures get confidence intervals.
    ``preset``        a named system whose settings these override.
    ``output``, ``events``, ``timeline``  Parquet files to write.
    ``timeline_every``  requests between two samples of the timeline.
    ``sample``        time between two samples of the timeline in timed replay; None: 1s.
    ``force``         overwrite them.
    """

    trace: str | None = None
    block_tokens: int | None = None
    tail_rule: Literal["ceil", "floor"] | None = None
    id_kind: Literal["prefix", "content"] | None = None
    id_scope: Literal["file", "session", "global"] | None = None
    block_bytes: int | str | None = None
    tokens: PartChoice | None = None
    tails: Tails = "drop"
    shared_blocks: int = 0
    workers: int = 1
    router: PartChoice | list[PartChoice] | None = None
    routers: int | None = None
    index: IndexConfig | None = None
    event_channel: ChannelConfig | None = None
    load: LoadConfig | None = None
    capacity: Capacity | list[Capacity] = "infinite"
    policy: PartChoice | list[PartChoice] | None = None
    order: Literal["tail-first", "head-first", "access"] = "tail-first"
    belady: Literal["auto", "on", "off"] = "auto"
    recompute: Literal["none", "token", "block"] = "none"
    store_output: bool = False
    seen: Literal["exact", "off"] = "exact"
    seed: int = 0
    on_error: Literal["fail", "skip"] = "fail"
    tiers: list[TierConfig] | None = None
    placement: Literal["inclusive", "exclusive", "spill"] = "inclusive"
    walk: Literal["any", "once"] = "any"
    workers_per_host: int = 1
    tp: int = 1
    model: str | None = None
    kv_dtype: str | None = None
    models: str | None = None
    save_only_first_rank: bool = False
    devices: str | None = None
    prefill_tokens_per_s: float | None = None
    faults: str | None = None
    retries: int = 0
    compute: PartChoice | None = None
    worker: WorkerConfig | None = None
    arrivals: ArrivalsConfig | None = None
    slo: SloConfig | None = None
    stop: StopConfig | None = None
    window: WindowConfig | None = None
    links: list[LinkConfig] | None = None
    seeds: int = 1
    preset: str | None = None
    output: str | None = None
    events: str | None = None
    timeline: str | None = None
    timeline_every: int = 1000
    sample: TimeText | None = None
    force: bool = False

    def check(self) -> RunConfig:
        """This configuration, or ConfigError for a setting that is out of range or has no effect."""
        for name in ("workers", "block_tokens", "workers_per_host", "tp", "timeline_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{option_of(name)} = {value} must be at least 1")
        if self.block_tokens is not None and self.block_tokens > MAX_TOKENS:
            raise ConfigError(f"--block-tokens = {self.block_tokens} must be at most {MAX_TOKENS:,}")
        if self.shared_blocks < 0:
            raise ConfigError(f"--shared-blocks = {self.shared_blocks} must not be negative")
        for name in ("router", "routers", *ROUTING_TABLES):
            if self.workers == 1 and getattr(self, name) is not None:
                raise ConfigError(f"{option_of(name)} has no effect with one worker; give --workers, or leave it out")
        check_routing(self.routers, self.index, self.event_channel, self.load, timed=self.compute is not None)
        check_clock(self)
        if self.tiers is None:
            self._check_without_tiers()
        else:
            self._check_tiers(self.tiers)
        if self.block_bytes is not None and self.model is not None:
            raise ConfigError("--block-bytes and --model both say how large a block is; give one of them")
        for name in ("kv_dtype", "models", "save_only_first_rank", "tp"):
            if self.model is None and getattr(self, name) not in (None, False, 1):
                if name == "tp" and self.tiers and any(tier.scope == "rank" for tier in self.tiers):
                    continue
                raise ConfigError(f"{option_of(name)} has no effect without --model")
        if self.store_output and self.tails == "keep":
            raise ConfigError("--store-output goes on from the last full block; it has no meaning with --tails keep")
        files = [path for path in (self.output, self.events, self.timeline) if path is not None]
        if self.force and not files:
            raise ConfigError("--force has no effect without --output, --events or --timeline")
        for at, path in enumerate(files):
            if any(same_file(path, other) for other in files[:at]):
                raise ConfigError(f"--output, --events and --timeline name the same file, {path}")
        return self

    def as_stack(self) -> RunConfig:
        """This configuration with the cache of a worker as the one tier of a stack, which is what timed replay has."""
        capacity, policy = self.capacity, self.policy
        assert not isinstance(capacity, list)
        assert not isinstance(policy, list)
        gpu = TierConfig(name=GPU, capacity=capacity, policy=policy)
        return msgspec.structs.replace(self, tiers=[gpu], capacity="infinite", policy=None)

    def _check_without_tiers(self) -> None:
        if self.capacity == "infinite" and self.policy is not None:
            raise ConfigError("--policy has no effect with infinite capacity: nothing is ever evicted; give --capacity")
        if self.capacity == "infinite" and self.order != "tail-first":
            raise ConfigError(f"--order {self.order} has no effect with infinite capacity; give --capacity")
        if self.capacity == "infinite" and self.belady == "on":
            raise ConfigError("--belady on has no effect with infinite capacity; give --capacity")
        if self.compute is not None:
            stack = self.as_stack()
            stack._check_tiers(stack.tiers or [])
            return
        defaults = RunConfig()
        for name in TELLS_OF_TIERS:
            if getattr(self, name) != getattr(defaults, name):
                raise ConfigError(f"{option_of(name)} has no effect without tiers; give --tier or --preset")

    def _check_tiers(self, tiers: list[TierConfig]) -> None:
        if self.capacity != "infinite" or self.policy is not None:
            raise ConfigError("--capacity and --policy are those of a single tier; give them in each --tier")
        if self.order == "access":
            raise ConfigError("--order access is block by block, for one tier; a stack serves requests whole")
        if len(tiers) > MAX_TIERS:
            raise ConfigError(f"{len(tiers)} tiers: a stack has at most {MAX_TIERS}")
        names = [tier.name for tier in tiers]
        for at, tier in enumerate(tiers):
            tier.check()
            if tier.name in names[:at]:
                raise ConfigError(f"two tiers are called {tier.name}")
            if tier.scope == "host" and self.workers == 1:
                raise ConfigError(f"{tier.setting}: scope host has no effect with one worker; give --workers")
            if tier.scope == "host" and self.workers_per_host == 1:
                raise ConfigError(f"{tier.setting}: scope host is scope worker unless --workers-per-host is above 1")
            if tier.scope == "cluster" and self.workers == 1:
                raise ConfigError(f"{tier.setting}: scope cluster has no effect with one worker; give --workers")
            if tier.scope == "rank" and self.tp == 1:
                raise ConfigError(f"{tier.setting}: scope rank has no effect with one rank; give --tp")
            if at and SCOPES.index(tier.scope) < SCOPES.index(tiers[at - 1].scope):
                raise ConfigError(f"{tier.setting} of scope {tier.scope} is below one of scope {tiers[at - 1].scope}")
            check_place(tiers, at, self.placement)
        if self.workers_per_host > 1 and all(each.scope != "host" for each in (*tiers, *(self.links or ()))):
            raise ConfigError("--workers-per-host has no effect without a tier of scope host")
        if self.compute is not None:
            check_transfers(self, tiers)
        if len(tiers) == 1 and self.walk != "any":
            raise ConfigError("--walk has no effect with one tier")
        if not tiers and self.order != "tail-first":
            raise ConfigError("--order has no effect without a tier")
        if self.timeline is None and self.timeline_every != RunConfig().timeline_every:
            raise ConfigError("--timeline-every has no effect without --timeline")
        if self.faults is None and self.retries:
            raise ConfigError("--retries has no effect without --faults")
        if not 0 <= self.retries <= MAX_RETRIES:
            raise ConfigError(f"--retries = {self.retries} must be from 0 to {MAX_RETRIES:,}")
        self._check_effects(tiers)

    def _check_effects(self, tiers: list[TierConfig]) -> None:
        """Settings of the run that mean nothing for these tiers."""
        if tiers and self.order != "tail-first" and all(t.capacity == "infinite" or t.order is not None for t in tiers):
            raise ConfigError(f"--order {self.order} has no effect: no tier evicts in an order other than its own")
        if self.belady == "on" and (not tiers or any(tier.capacity == "infinite" for tier in tiers)):
            raise ConfigError("--belady on has no effect unless every tier has a capacity")
        if len(tiers) == 1 and self.placement == "exclusive":
            raise ConfigError("--placement exclusive has no effect with one tier")
        rate = self.prefill_tokens_per_s
        if rate is not None and not 0 < rate < math.inf:
            raise ConfigError(f"--prefill-tokens-per-s = {rate:g} must be a positive, finite rate")
        for name in ("devices", "prefill_tokens_per_s"):
            if getattr(self, name) is not None and all(tier.device is None for tier in tiers):
                raise ConfigError(f"{option_of(name)} has no effect: no tier has a device")

    @property
    def is_matrix(self) -> bool:
        """Whether several policies, routers or capacities are asked for."""
        return any(isinstance(each, list) for each in (self.capacity, self.policy, self.router))

    def cells(self) -> list[RunConfig]:
        """One configuration for each capacity, policy and router, capacities in the outer loop."""
        if self.compute is not None and self.is_matrix:
            raise ConfigError(
                "--compute: a timed replay has one capacity, one policy and one router; several make a table of order "
                "replay"
            )
        capacities = self.capacity if isinstance(self.capacity, list) else [self.capacity]
        policies = self.policy if isinstance(self.policy, list) else [self.policy]
        routers = self.router if isinstance(self.router, list) else [self.router]
        return [
            msgspec.structs.replace(self, capacity=capacity, policy=policy, router=router).check()
            for capacity in capacities
            for policy in policies
            for router in routers
        ]

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values; those that are None are left out."""
        settings = {name: value for name, value in msgspec.to_builtins(self).items() if value is not None}
        for name in TABLES:
            if name in settings:
                settings[name] = without_none(settings[name])
        if "links" in settings:
            settings["links"] = [without_none(link) for link in settings["links"]]
        return settings


TELLS_OF_TIERS = (
    *("placement", "walk", "workers_per_host", "devices", "prefill_tokens_per_s"),
    *("faults", "retries", "timeline", "timeline_every"),
)
"""Settings that mean nothing without tiers."""


def parse_part(choice: PartChoice, setting: str) -> tuple[str, dict[str, ParamValue]]:
    """Name and parameters of a part from ``name,key=value`` or from a TOML table with ``name``."""
    if isinstance(choice, dict):
        params = dict(choice)
        name = params.pop("name", None)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{setting} = {choice!r} needs a key 'name'")
        return name, params
    name, *pairs = choice.split(",")
    params = dict(key_values(pairs, f"{setting} = {choice!r}"))
    return name.strip(), params


def load_config(path: Path | None, overrides: dict[str, Any]) -> RunConfig:
    """The configuration of a TOML file (if any) with ``overrides`` on top.

    Raises ConfigError for a file that cannot be read, an unknown key or a wrong type.
    """
    settings: dict[str, Any] = {} if path is None else read_toml(path)
    where = f"{path}: " if path is not None else ""
    settings = typed_settings(settings | overrides, where)
    if isinstance(settings.get("preset"), str):
        settings = with_preset(settings)
    capacity = settings.get("capacity")
    if isinstance(capacity, str) and "," in capacity:
        settings["capacity"] = [part.strip() for part in capacity.split(",")]
    try:
        config = msgspec.convert(settings, RunConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}{error}") from None
    for name in ("capacity", "policy", "router"):
        if getattr(config, name) == []:
            raise ConfigError(f"{where}{name} is an empty list")
    config.cells()
    return config


def typed_settings(settings: dict[str, Any], where: str = "") -> dict[str, Any]:
    """``settings`` with tiers, links and tables as tables, however typed. Raises ConfigError for unknown keys."""
    for name in settings:
        if name not in RunConfig.__struct_fields__:
            raise ConfigError(f"{where}unknown key {name!r}; {did_you_mean(name, RunConfig.__struct_fields__)}")
    settings = {**settings, **typed_tables(settings, TABLES, where)}
    if isinstance(settings.get("tiers"), (list, tuple)):
        settings["tiers"] = [_tier_table(tier) for tier in settings["tiers"]]
    if isinstance(settings.get("links"), (list, tuple)):
        settings["links"] = [as_table(link, LINK, "--link") for link in settings["links"]]
    return settings


def _tier_table(tier: Any) -> Any:
    """A tier as a table, from an option's text or a structure."""
    if isinstance(tier, str):
        return _typed_tier(tier)
    return msgspec.to_builtins(tier) if isinstance(tier, TierConfig) else tier


def _typed_tier(text: str) -> dict[str, Any]:
    """The table of a ``--tier`` option; its values are text, so numbers are read from them."""
    table = parse_tier(text)
    try:
        tier = msgspec.to_builtins(msgspec.convert(table, TierConfig, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"--tier {text}: {error}") from None
    return {name: tier[name] for name in table}


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says. Raises ConfigError for a file that cannot be read or is no TOML."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
