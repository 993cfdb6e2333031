"""Routers and what they know, built from a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.replays.parts import parse_capacity
from kvbench.routeconfig import ChannelConfig, IndexConfig, LoadConfig
from kvbench.routing import (
    Dispatcher,
    EventChannel,
    EventFeed,
    KvbmIndex,
    MirrorPredictor,
    RouterContext,
    RouterPolicy,
    RouterView,
    TimedPredictor,
)
from kvbench.seeds import stream_seed
from kvbench.specs import RouterPolicySpec
from kvbench.units import parse_lag

if TYPE_CHECKING:
    from kvbench.replays.plan import Plan
    from kvbench.trace.reader import Trace


def make_dispatcher(
    plan: Plan, *, dense: bool, capacity_blocks: int | None, block_tokens: int | None, timed: bool = False
) -> Dispatcher:
    """The routers of ``plan``, which has several workers.

    ``dense``            whether keys are dense block ids.
    ``capacity_blocks``  of a worker's fastest tier; None without bound.
    ``timed``            whether the dispatcher will be told when requests end.
    """
    config = plan.config
    groups = [(tier.group, tier.ranks) for tier in plan.tiers or ()] or [(1, 1)]
    truth = KvbmIndex(config.workers, dense, groups)
    index = config.index or IndexConfig()
    channel = config.event_channel or ChannelConfig()
    views = []
    for number in range(config.routers or 1):
        # The first router draws the same numbers however many there are.
        name = "router" if number == 0 else f"router {number}"
        context = RouterContext(
            config.workers,
            stream_seed(config.seed, name),
            block_tokens=block_tokens,
            capacity_blocks=capacity_blocks,
            tiers=tuple(tier.name for tier in plan.tiers or ()) or ("cache",),
        )
        router = make_router(plan, context)
        if index.mode == "oracle" or (index.mode == "events" and channel.is_ideal and index.copies == "set"):
            views.append(RouterView(router, truth))
            continue
        own = KvbmIndex(config.workers, dense, groups, counts_copies=index.copies == "count", predicts=index.predicts)
        views.append(_make_view(plan, router, own, channel, context, stream_seed(config.seed, f"events of {name}")))
    return Dispatcher(truth, views, timed=timed, **_load_settings(config.load or LoadConfig()))


def make_router(plan: Plan, context: RouterContext) -> RouterPolicy:
    """One router. Raises ConfigError for a factory that makes something else."""
    assert plan.router is not None
    router = plan.router.make(context)
    if not isinstance(router, RouterPolicy):
        raise ConfigError(
            f"router policy {plan.router.spec.name} made a {type(router).__name__}, "
            "which is no kvbench.routing.RouterPolicy"
        )
    return router


def _make_view(
    plan: Plan, router: RouterPolicy, own: KvbmIndex, channel: ChannelConfig, context: RouterContext, seed: int
) -> RouterView:
    """A router with an index of its own."""
    index = plan.config.index or IndexConfig()
    predictor: TimedPredictor | MirrorPredictor | None = None
    if index.capacity is not None:
        predictor = MirrorPredictor(own, capacity=_mirror_blocks(plan, index.capacity, context.block_tokens))
    elif index.predicts:
        predictor = TimedPredictor(own, ttl=parse_lag(index.lifetime))
    if index.mode == "approximate":
        return RouterView(router, own, predictor=predictor)
    if channel.is_ideal:
        return RouterView(router, own, predictor=predictor, hears=True)
    events = EventChannel(
        EventFeed(own),
        coalesce=parse_lag(channel.coalesce),
        delay=parse_lag(channel.delay),
        cycle=parse_lag(channel.cycle),
        batch=channel.batch,
        loss=channel.loss,
        duplication=channel.duplication,
        reorder=channel.reorder,
        seed=seed,
    )
    return RouterView(router, own, channel=events, predictor=predictor)


def _mirror_blocks(plan: Plan, capacity: int | str, block_tokens: int | None) -> int:
    """Blocks that an approximate index believes a worker to hold."""
    blocks, _ = parse_capacity(capacity, plan.block_bytes, setting="--index: capacity", block_tokens=block_tokens)
    if blocks is None:
        raise ConfigError(
            f"--index: capacity = {capacity} is no number of blocks, tokens or bytes; ttl forgets by time"
        )
    return blocks


def _load_settings(load: LoadConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {"prefill_share": load.prefill_share, "period": parse_lag(load.period)}
    for name in ("window", "sync"):
        if getattr(load, name) is not None:
            settings[name] = parse_lag(getattr(load, name))
    return settings


def routing_columns(plan: Plan, trace: Trace) -> tuple[str, ...]:
    """The trace columns that the plan's router looks at: those that it needs, and of those that it uses
    where they are, the ones that the trace has."""
    if plan.router is None:
        return ()
    spec = plan.router.spec
    assert isinstance(spec, RouterPolicySpec)
    uses = [column for column in spec.uses if column in trace.schema.names]
    return ("input_tokens", *spec.columns, *uses)
