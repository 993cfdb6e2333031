"""The tiers of a plan: parts chosen, sizes in blocks and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.config import parse_part
from kvbench.errors import ConfigError
from kvbench.replays.parts import ChosenPart, check_columns, choose, parse_capacity
from kvbench.specs import AdmissionSpec, DeviceSpec, EvictionPolicySpec

if TYPE_CHECKING:
    from fractions import Fraction

    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.serving.device import Device
    from kvbench.serving.kvsize import KvLayout
    from kvbench.tierconfig import PartChoice, TierConfig
    from kvbench.trace.reader import Trace

MAX_STORES = 65_536

PLACEMENTS = {
    "inclusive": {"write": "through", "promotion": "copy"},
    "exclusive": {"write": "back", "promotion": "move"},
    "spill": {"write": "spill", "promotion": "none"},
}
"""What each placement means for a tier that does not say otherwise."""


@dataclass(frozen=True, slots=True)
class TierPlan:
    """One tier with its parts chosen.

    ``capacity_chunks``  of each store; None without bound, and while it depends on ``capacity_share``.
    ``chunk_bytes``      of a chunk in one store; None where block sizes are not known.
    ``group``            workers that share one store.
    ``ranks``            stores of one worker: its ranks where each has its own, else 1.
    """

    config: TierConfig
    policy: ChosenPart | None
    admission: ChosenPart | None
    device: Device | None
    device_part: ChosenPart | None
    write: str
    promotion: str
    order: str
    capacity_chunks: int | None
    capacity_share: Fraction | None
    chunk_bytes: int | None
    group: int
    ranks: int
    last: bool

    @property
    def name(self) -> str:
        return self.config.name

    def stores(self, workers: int) -> int:
        """How many stores the tier has in all, a rank's counted each."""
        return -(-workers // self.group) * self.ranks

    def to_dict(self) -> dict[str, Any]:
        """The effective settings, as a ``[[tiers]]`` table that can be run again."""
        settings = msgspec.to_builtins(self.config)
        settings |= {"write": self.write, "promotion": self.promotion, "order": self.order}
        if self.config.capacity == "infinite":
            del settings["order"]
        for name, part in (("policy", self.policy), ("admission", self.admission)):
            settings[name] = None if part is None else part.to_dict()
        if self.device_part is not None:
            settings["device"] = self.device_part.to_dict()
        for name in self._implied():
            settings.pop(name, None)
        if self.capacity_chunks is not None:
            settings["capacity"] = self.capacity_chunks * self.config.chunk
        return {name: value for name, value in settings.items() if value is not None}

    def _implied(self) -> list[str]:
        """Settings that others leave no choice of."""
        names = ["policy"] if self.config.quotas is not None else []
        if self.write == "spill":
            names += ["write", "promotion"]
            if not self.last:
                names += ["order"] if self.config.policy is not None else ["order", "policy"]
        elif self.last:
            names.append("promotion")
        return names


def plan_tiers(
    config: RunConfig,
    registry: Registry,
    trace: Trace,
    block_bytes: int | None,
    block_tokens: int | None,
    layout: KvLayout | None,
) -> tuple[TierPlan, ...]:
    """Resolve the tiers of ``config``. Raises ConfigError, naming the tier, for what does not fit."""
    tiers = config.tiers or []
    if config.prefill_tokens_per_s is not None and block_bytes is None:
        raise ConfigError("--prefill-tokens-per-s has no effect without --block-bytes or --model")
    return tuple(
        _plan_tier(
            tier, config, registry, trace, block_bytes, block_tokens, layout, first=at == 0, last=at == len(tiers) - 1
        )
        for at, tier in enumerate(tiers)
    )


def _plan_tier(
    tier: TierConfig,
    config: RunConfig,
    registry: Registry,
    trace: Trace,
    block_bytes: int | None,
    block_tokens: int | None,
    layout: KvLayout | None,
    *,
    first: bool,
    last: bool,
) -> TierPlan:
    ranks = config.tp if tier.scope == "rank" else 1
    if tier.scope == "rank" and layout is not None and block_tokens is not None:
        block_bytes = layout.rank_block_bytes(block_tokens)
    chunk_bytes = None if block_bytes is None else block_bytes * tier.chunk
    blocks, share = parse_capacity(
        tier.capacity, block_bytes, setting=f"{tier.setting}: capacity", block_tokens=block_tokens
    )
    if blocks is not None and blocks < tier.chunk:
        raise ConfigError(f"{tier.setting}: capacity = {tier.capacity} is less than one chunk of {tier.chunk} blocks")
    policy = _policy(tier, registry, trace, _quotas(tier, block_bytes, block_tokens, blocks, share))
    device, device_part = _device(tier.device, config, registry, tier.setting)
    defaults = PLACEMENTS[config.placement]
    write = tier.write or ("through" if first and config.placement != "spill" else defaults["write"])
    promotion = "none" if last else tier.promotion or defaults["promotion"]
    _check_effects(tier, write, promotion)
    ahead = policy is not None and isinstance(policy.spec, EvictionPolicySpec) and policy.spec.looks_ahead
    if ahead and (tier.chunk > 1 or write == "back"):
        raise ConfigError(
            f"{tier.setting}: the policy looks ahead block by block, at requests: it goes with chunk 1, and not with "
            "write back"
        )
    group = {"rank": 1, "worker": 1, "host": config.workers_per_host, "cluster": config.workers}[tier.scope]
    if ranks * config.workers > MAX_STORES:
        raise ConfigError(f"{tier.setting}: {ranks:,} ranks each of {config.workers:,} workers: at most {MAX_STORES:,}")
    return TierPlan(
        tier,
        policy,
        _admission(tier, registry),
        device,
        device_part,
        write,
        promotion,
        tier.order or config.order,
        None if blocks is None else blocks // tier.chunk,
        share,
        chunk_bytes,
        group,
        ranks,
        last,
    )


def _check_effects(tier: TierConfig, write: str, promotion: str) -> None:
    """Raise ConfigError for a setting that does nothing beside the others."""
    if promotion != "none" or write == "spill":
        return
    if tier.fit == "all" and write != "through":
        raise ConfigError(f"{tier.setting}: fit = all has no effect with write {write} and no promotion")
    if tier.admission != "all" and write == "none":
        raise ConfigError(f"{tier.setting}: admission has no effect with write none and no promotion")


def _quotas(
    tier: TierConfig,
    block_bytes: int | None,
    block_tokens: int | None,
    capacity_blocks: int | None,
    share: Fraction | None,
) -> list[int] | None:
    """The tenants' quotas in chunks, in the order of the table."""
    if tier.quotas is None:
        return None
    if share is not None:
        raise ConfigError(f"{tier.setting}: quotas need a capacity in blocks, tokens or bytes, not {tier.capacity}")
    quotas = []
    for tenant, capacity in tier.quotas.items():
        setting = f"{tier.setting}: quota of {tenant}"
        blocks, part = parse_capacity(capacity, block_bytes, setting=setting, block_tokens=block_tokens)
        if blocks is None or part is not None:
            raise ConfigError(f"{setting} = {capacity} is no number of blocks, tokens or bytes")
        if blocks < tier.chunk:
            raise ConfigError(f"{setting} = {capacity} is less than one chunk of {tier.chunk} blocks")
        quotas.append(blocks // tier.chunk)
    if capacity_blocks is not None and sum(quotas) > capacity_blocks // tier.chunk:
        raise ConfigError(
            f"{tier.setting}: quotas of {sum(quotas) * tier.chunk:,} blocks in all are more than its capacity of "
            f"{capacity_blocks:,}"
        )
    return quotas


def _policy(tier: TierConfig, registry: Registry, trace: Trace, quotas: list[int] | None) -> ChosenPart | None:
    if tier.capacity == "infinite":
        return None
    choice: PartChoice = "lru" if tier.policy is None else tier.policy
    if quotas is not None:
        choice = {"name": "tenant-lru", "quotas": ",".join(str(quota) for quota in quotas)}
    policy = choose(registry, EvictionPolicySpec, choice, f"{tier.setting}: policy")
    check_columns(policy, trace)
    return policy


def _admission(tier: TierConfig, registry: Registry) -> ChosenPart | None:
    part = choose(registry, AdmissionSpec, tier.admission, f"{tier.setting}: admission")
    return None if part.spec.name == "all" else part


def _device(
    choice: PartChoice | None, config: RunConfig, registry: Registry, setting: str
) -> tuple[Device | None, ChosenPart | None]:
    """The device of a tier: one of the user's file, else one of the registry."""
    if choice is None:
        return None, None
    if config.devices is not None:
        from kvbench.serving.devices import load_devices, make_device

        devices = load_devices(Path(config.devices))
        name, figures = parse_part(choice, f"{setting}: device")
        if name in devices:
            return make_device(name, devices=devices, **figures), None
    part = choose(registry, DeviceSpec, choice, f"{setting}: device")
    return part.make(part.spec.name), part
