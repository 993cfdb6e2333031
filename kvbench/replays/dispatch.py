"""Routers and indexes built from a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.routing import Dispatcher, KvbmIndex, RouterContext, RouterPolicy
from kvbench.seeds import stream_seed
from kvbench.specs import RouterPolicySpec

if TYPE_CHECKING:
    from kvbench.replays.plan import Plan
    from kvbench.trace.reader import Trace


def make_dispatcher(plan: Plan, *, dense: bool, capacity_blocks: int | None, block_tokens: int | None) -> Dispatcher:
    """The routers of ``plan``, which has several workers.

    ``dense``            whether keys are dense block ids.
    ``capacity_blocks``  of a worker's fastest tier; None without bound.
    """
    config = plan.config
    groups = [(tier.group, tier.ranks) for tier in plan.tiers or ()] or [(1, 1)]
    context = RouterContext(
        config.workers,
        stream_seed(config.seed, "router"),
        block_tokens=block_tokens,
        capacity_blocks=capacity_blocks,
        tiers=tuple(tier.name for tier in plan.tiers or ()) or ("cache",),
    )
    return Dispatcher(KvbmIndex(config.workers, dense, groups), [make_router(plan, context)])


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


def routing_columns(plan: Plan, trace: Trace) -> tuple[str, ...]:
    """The trace columns that the plan's router looks at: those that it needs, and of those that it uses
    where they are, the ones that the trace has."""
    if plan.router is None:
        return ()
    spec = plan.router.spec
    assert isinstance(spec, RouterPolicySpec)
    uses = [column for column in spec.uses if column in trace.schema.names]
    return ("input_tokens", *spec.columns, *uses)
