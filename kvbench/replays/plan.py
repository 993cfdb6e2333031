"""From a configuration to a plan: every name resolved, every number in its final unit.

A plan is what really runs. It goes into the manifest, and two runs with equal plans over equal
rows give equal results.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.config import NOT_PART_OF_RESULT, RunConfig
from kvbench.errors import ConfigError, TraceError
from kvbench.replays.outputs import output_column
from kvbench.replays.parts import ChosenPart, check_columns, choose, choose_tokens, parse_capacity
from kvbench.replays.serveplan import FITTED_ON, ServePlan, plan_serving, serving_block_tokens
from kvbench.replays.tierplan import TierPlan, plan_tiers
from kvbench.routeconfig import IndexConfig
from kvbench.serveconfig import ArrivalsConfig, StopConfig, WorkerConfig
from kvbench.specs import EvictionPolicySpec, RouterPolicySpec, TokenDatabaseSpec
from kvbench.tables import option_of, parse_table, without_none
from kvbench.units import parse_bytes

if TYPE_CHECKING:
    from fractions import Fraction

    from kvbench.plugins import Registry
    from kvbench.serving.kvsize import KvLayout
    from kvbench.specs import Spec
    from kvbench.trace.reader import Trace

MAX_WORKERS = 65_536


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration with its parts chosen.

    ``capacity_blocks`` is None while it depends on the trace's distinct blocks
    (``capacity_share``) and where the capacity is infinite. ``serving`` is there in timed replay, and so
    are ``tiers`` then: ``config`` is the stack that the run has, be it of the GPU's memory alone.
    """

    config: RunConfig
    tokens: ChosenPart | None
    policy: ChosenPart | None
    router: ChosenPart | None
    capacity_blocks: int | None
    capacity_share: Fraction | None
    block_bytes: int | None
    tiers: tuple[TierPlan, ...] | None = None
    layout: KvLayout | None = None
    serving: ServePlan | None = None

    @property
    def parts(self) -> list[ChosenPart]:
        """The parts in use."""
        chosen = [self.tokens, self.policy, self.router]
        if self.tokens is not None:
            chosen.append(self.tokens.hashing)
        for tier in self.tiers or ():
            chosen += [tier.policy, tier.admission, tier.device_part]
        if self.serving is not None:
            chosen.append(self.serving.compute)
        return [part for part in chosen if part is not None]

    @property
    def tenants(self) -> tuple[str, ...]:
        """Tenants that quotas name: they have the first numbers, the same ones for all tiers."""
        quotas = [tuple(tier.config.quotas) for tier in self.tiers or () if tier.config.quotas is not None]
        if any(each != quotas[0] for each in quotas):
            raise ConfigError("quotas of several tiers must name the same tenants in the same order")
        return quotas[0] if quotas else ()

    @property
    def policy_name(self) -> str:
        """The policy as it is typed: its name and the parameters that differ from their defaults."""
        return "infinite" if self.policy is None else _typed(self.policy)

    @property
    def router_name(self) -> str | None:
        """The router as it is typed; None with one worker."""
        return None if self.router is None else _typed(self.router)

    @property
    def index_name(self) -> str | None:
        """How the router learns who holds what, as it is typed; None with one worker."""
        if self.router is None:
            return None
        given = msgspec.to_builtins(self.config.index or IndexConfig())
        defaults = msgspec.to_builtins(IndexConfig())
        changed = [f"{key}={value}" for key, value in given.items() if key != "mode" and value != defaults[key]]
        return ",".join([given["mode"], *changed])

    def to_dict(self, capacity_blocks: int | None) -> dict[str, Any]:
        """The effective configuration, without the names of files."""
        settings = {name: value for name, value in self.config.to_dict().items() if name not in NOT_PART_OF_RESULT}
        for name, part in (("tokens", self.tokens), ("policy", self.policy), ("router", self.router)):
            if part is not None:
                settings[name] = part.to_dict()
        if self.config.index is not None and self.config.index.predicts and self.config.index.capacity is None:
            settings["index"]["ttl"] = self.config.index.lifetime
        if self.block_bytes is not None:
            settings["block_bytes"] = self.block_bytes
        if self.config.capacity != "infinite" and capacity_blocks is not None:
            settings["capacity"] = capacity_blocks
        if self.tiers is not None:
            settings.pop("capacity")
            settings["tiers"] = [tier.to_dict() for tier in self.tiers]
        if self.serving is not None:
            fitted = {FITTED_ON: self.serving.fitted_on} if self.serving.fitted_on else {}
            settings["compute"] = self.serving.compute.to_dict() | fitted
            for name, table in (("worker", WorkerConfig()), ("arrivals", ArrivalsConfig()), ("stop", StopConfig())):
                settings.setdefault(name, without_none(msgspec.to_builtins(table)))
            if self.tokens is None:
                settings["block_tokens"] = self.serving.block_tokens
        return dict(sorted(settings.items()))


def _typed(part: ChosenPart) -> str:
    """A part as it is typed: its name and the parameters that differ from their defaults."""
    defaults = {param.name: param.default for param in part.spec.params}
    given = [f"{key}={value}" for key, value in part.params.items() if value != defaults.get(key)]
    return ",".join([part.spec.name, *given])


def make_plan(config: RunConfig, registry: Registry, trace: Trace) -> Plan:
    """Resolve ``config`` for ``trace``. Raises ConfigError for what does not fit it."""
    tokens = _choose_tokens(config, registry, trace)
    if config.tails == "keep" and trace.ids == "block_ids" and trace.facts.tail_rule == "floor":
        raise ConfigError(
            f"--tails keep has no effect on {trace.name}: its partial last blocks have no ids (tail rule floor)"
        )
    _check_effects(config, trace)
    if config.compute is not None and config.tiers is None:
        config = config.as_stack()
    if config.shared_blocks and "tenant" not in trace.schema.names:
        raise ConfigError(f"--shared-blocks has no effect on {trace.name}: it has no column tenant")
    if config.store_output:
        output_column(frozenset(trace.schema.names))
    block_tokens = trace.facts.block_tokens if config.compute is None else serving_block_tokens(trace)
    layout = _layout(config, trace, block_tokens)
    block_bytes = _bytes_of(config.block_bytes, "block_bytes")
    if layout is not None and block_tokens is not None:
        block_bytes = layout.block_bytes(block_tokens)
    blocks, share = parse_capacity(_single(config.capacity, "capacity"), block_bytes, block_tokens=block_tokens)
    infinite = config.capacity == "infinite"
    policy = router = tiers = None
    if config.tiers is not None:
        tiers = plan_tiers(config, registry, trace, block_bytes, block_tokens, layout)
    if not infinite:
        choice = _single("lru" if config.policy is None else config.policy, "policy")
        policy = choose(registry, EvictionPolicySpec, choice, "--policy")
        check_columns(policy, trace)
    if config.workers > MAX_WORKERS:
        raise ConfigError(f"--workers = {config.workers} is above {MAX_WORKERS}")
    if config.workers > 1:
        choice = _single("max-prefix" if config.router is None else config.router, "router")
        router = choose(registry, RouterPolicySpec, choice, "--router")
        check_columns(router, trace)
        config = _with_index(config, router.spec)
    serving = None
    if config.compute is not None and tiers is not None and block_tokens is not None:
        serving = plan_serving(config, registry, trace, tiers, block_tokens)
    return Plan(
        config,
        tokens,
        policy,
        router,
        blocks,
        share,
        block_bytes,
        tiers,
        layout,
        serving,
    )


def _with_index(config: RunConfig, router: Spec) -> RunConfig:
    """``config`` with the index that comes with the router, where the run names none."""
    assert isinstance(router, RouterPolicySpec)
    if config.index is not None or not router.index:
        return config
    index = IndexConfig(**parse_table(router.index, IndexConfig, "--index", first="mode"))
    if config.event_channel is not None and not index.hears_events:
        raise ConfigError(
            f"--event-channel has no effect with --router {router.name}, whose index, {router.index}, hears no events; "
            "give --index events, or leave it out"
        )
    return msgspec.structs.replace(config, index=index).check()


def _layout(config: RunConfig, trace: Trace, block_tokens: int | None) -> KvLayout | None:
    """How the configured model's KV is laid out; None where no model is named."""
    if config.model is None:
        return None
    from kvbench.serving.kvsize import parse_dtype
    from kvbench.serving.models import kv_layout

    if block_tokens is None:
        raise ConfigError(f"--model has no effect on {trace.name}: it has no blocks")
    return kv_layout(
        config.model,
        config.tp,
        None if config.kv_dtype is None else parse_dtype(config.kv_dtype, "--kv-dtype"),
        None if config.models is None else Path(config.models),
        config.save_only_first_rank,
    )


def _single(value: Any, name: str) -> Any:
    """The one value of a setting that may have several elsewhere."""
    if isinstance(value, list):
        raise ConfigError(
            f"{option_of(name)} = {value}: one replay has one {name}; kvbench.replay_matrix takes several"
        )
    return value


TELLS_OF_IDS = (
    *("tokens", "block_tokens", "tail_rule", "id_kind", "id_scope", "tails"),
    *("capacity", "policy", "order", "seen", "belady", "events", "tiers", "recompute", "store_output", "shared_blocks"),
)
"""Settings that mean nothing for a trace without ids."""

TELLS_OF_MEMORY = ("block_tokens", "capacity", "tiers")
"""Those of them that say how much GPU memory there is, which a timed replay fills with or without ids."""


def _check_effects(config: RunConfig, trace: Trace) -> None:
    """Refuse settings that this kind of trace gives no meaning to."""
    defaults = RunConfig()
    if trace.ids is None:
        for name in TELLS_OF_IDS:
            if config.compute is not None and name in TELLS_OF_MEMORY:
                continue
            if getattr(config, name) != getattr(defaults, name):
                raise ConfigError(
                    f"{option_of(name)} has no effect on {trace.name}: it has neither block_ids nor token_ids"
                )
        if config.tiers is not None and len(config.tiers) > 1:
            raise ConfigError(f"--tier: {trace.name} has no ids, so tiers below {config.tiers[0].name} have no effect")
    for name in ("tail_rule", "id_kind", "id_scope"):
        if trace.ids == "token_ids" and getattr(config, name) is not None:
            raise ConfigError(f"{option_of(name)} has no effect on {trace.name}: it has token_ids, not block_ids")


def _choose_tokens(config: RunConfig, registry: Registry, trace: Trace) -> ChosenPart | None:
    if trace.ids is None:
        return None
    default = "ids" if trace.ids == "block_ids" else "chained"
    chosen = choose_tokens(registry, default if config.tokens is None else config.tokens, "--tokens")
    spec = chosen.spec
    assert isinstance(spec, TokenDatabaseSpec)
    if trace.ids not in spec.reads:
        raise TraceError(f"{trace.name} has {trace.ids}; token database {spec.name} reads {', '.join(spec.reads)}")
    if config.tails == "keep" and not spec.tails:
        raise ConfigError(f"--tails keep has no effect on token database {spec.name}: it keys full blocks only")
    return chosen


def _bytes_of(value: int | str | None, name: str) -> int | None:
    if value is None:
        return None
    count = parse_bytes(str(value))
    if count == 0:
        raise ConfigError(f"{name} = {value} must be at least 1 byte")
    return count
