"""From a configuration to a plan: every name resolved, every number in its final unit.

A plan is what really runs. It goes into the manifest, and two runs with equal plans over equal
rows give equal results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kvbench.config import NOT_PART_OF_RESULT, PartChoice, RunConfig, option, parse_part
from kvbench.errors import ConfigError, KvbenchError, PluginError, TraceError, one_line
from kvbench.specs import EvictionPolicySpec, ParamValue, RouterPolicySpec, Spec, TokenDatabaseSpec
from kvbench.units import BYTE_UNITS, COUNT_UNITS, parse_bytes, parse_count, split_quantity, unknown_unit

if TYPE_CHECKING:
    from fractions import Fraction

    from kvbench.plugins import Registry
    from kvbench.trace.reader import Trace

S = TypeVar("S", bound=Spec)

MAX_BLOCKS = 2**30
MAX_WORKERS = 65_536


@dataclass(frozen=True, slots=True)
class ChosenPart:
    """A part and the parameters it is made with, defaults filled in."""

    spec: Spec
    params: dict[str, ParamValue]

    def make(self, *args: Any) -> Any:
        """Make the part. Raises PluginError, naming it, when its factory fails."""
        try:
            return self.spec.load()(*args, **self.params)
        except (KvbenchError, MemoryError):
            raise
        except Exception as error:  # a stranger's code may raise anything
            raise PluginError(f"{self.spec.kind} {self.spec.name} cannot be made: {one_line(error)}") from error

    def to_dict(self) -> dict[str, ParamValue]:
        return {"name": self.spec.name, **self.params}


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration with its parts chosen.

    ``capacity_blocks`` is None while it depends on the trace's distinct blocks
    (``capacity_share``) and where the capacity is infinite.
    """

    config: RunConfig
    tokens: ChosenPart | None
    policy: ChosenPart | None
    router: ChosenPart | None
    capacity_blocks: int | None
    capacity_share: Fraction | None
    block_bytes: int | None

    @property
    def parts(self) -> list[ChosenPart]:
        """The parts in use."""
        return [part for part in (self.tokens, self.policy, self.router) if part is not None]

    @property
    def policy_name(self) -> str:
        """The policy as it is typed: its name and the parameters that differ from their defaults."""
        if self.policy is None:
            return "infinite"
        defaults = {param.name: param.default for param in self.policy.spec.params}
        given = [f"{key}={value}" for key, value in self.policy.params.items() if value != defaults.get(key)]
        return ",".join([self.policy.spec.name, *given])

    def to_dict(self, capacity_blocks: int | None) -> dict[str, Any]:
        """The effective configuration, without the names of files."""
        settings = {name: value for name, value in self.config.to_dict().items() if name not in NOT_PART_OF_RESULT}
        for name, part in (("tokens", self.tokens), ("policy", self.policy), ("router", self.router)):
            if part is not None:
                settings[name] = part.to_dict()
        if self.block_bytes is not None:
            settings["block_bytes"] = self.block_bytes
        if self.config.capacity != "infinite" and capacity_blocks is not None:
            settings["capacity"] = capacity_blocks
        return dict(sorted(settings.items()))


def make_plan(config: RunConfig, registry: Registry, trace: Trace) -> Plan:
    """Resolve ``config`` for ``trace``. Raises ConfigError for what does not fit it."""
    tokens = _choose_tokens(config, registry, trace)
    if config.tails == "keep" and trace.ids == "block_ids" and trace.facts.tail_rule == "floor":
        raise ConfigError(
            f"--tails keep has no effect on {trace.name}: its partial last blocks have no ids (tail rule floor)"
        )
    _check_effects(config, trace)
    block_bytes = _bytes_of(config.block_bytes, "block_bytes")
    blocks, share = parse_capacity(_single(config.capacity, "capacity"), block_bytes)
    infinite = config.capacity == "infinite"
    policy = router = None
    if not infinite:
        choice = _single("lru" if config.policy is None else config.policy, "policy")
        policy = _choose(registry, EvictionPolicySpec, choice, "--policy")
        _check_columns(policy.spec, trace)
    if config.workers > MAX_WORKERS:
        raise ConfigError(f"--workers = {config.workers} is above {MAX_WORKERS}")
    if config.workers > 1:
        choice = "max-prefix" if config.router is None else config.router
        router = _choose(registry, RouterPolicySpec, choice, "--router")
    return Plan(
        config,
        tokens,
        policy,
        router,
        blocks,
        share,
        block_bytes,
    )


def parse_capacity(capacity: int | str, block_bytes: int | None) -> tuple[int | None, Fraction | None]:
    """Blocks, or a share of the trace's distinct blocks; neither for ``infinite``.

    Raises ConfigError for a capacity of no block, for bytes without ``--block-bytes``, and for
    what is no capacity at all.
    """
    if capacity == "infinite":
        return None, None
    text = str(capacity)
    number, unit = split_quantity(text)
    if unit == "%":
        if not 0 < number <= 100:
            raise ConfigError(f"--capacity = {text}: a share is above 0 % and at most 100 %")
        return None, number / 100
    if unit in BYTE_UNITS:
        if block_bytes is None:
            raise ConfigError(f"--capacity = {text} is in bytes; say with --block-bytes how large a block is")
        blocks = parse_bytes(text) // block_bytes
        if blocks == 0:
            raise ConfigError(f"--capacity = {text} is smaller than one block of {block_bytes:,} bytes")
    elif unit not in COUNT_UNITS:
        raise ConfigError(f"--capacity = {text}: {unknown_unit(unit, (*COUNT_UNITS, *BYTE_UNITS, '%'))}")
    else:
        blocks = parse_count(text)
        if blocks == 0:
            raise ConfigError(f"--capacity = {text}: a tier holds at least one block")
    if blocks > MAX_BLOCKS:
        raise ConfigError(f"--capacity = {text} is {blocks:,} blocks; a tier holds at most {MAX_BLOCKS:,}")
    return blocks, None


def _single(value: Any, name: str) -> Any:
    """The one value of a setting that may have several elsewhere."""
    if isinstance(value, list):
        raise ConfigError(f"{option(name)} = {value}: one replay has one {name}; kvbench.replay_matrix takes several")
    return value


def _choose(registry: Registry, kind: type[S], choice: PartChoice, setting: str) -> ChosenPart:
    name, params = parse_part(choice, setting)
    spec = registry.get(kind, name)
    return ChosenPart(spec, spec.parse_params(params))


TELLS_OF_IDS = (
    *("tokens", "block_tokens", "tail_rule", "id_kind", "id_scope", "tails"),
    *("capacity", "policy", "order", "seen", "belady", "events"),
)
"""Settings that mean nothing for a trace without ids."""


def _check_effects(config: RunConfig, trace: Trace) -> None:
    """Refuse settings that this kind of trace gives no meaning to."""
    defaults = RunConfig()
    if trace.ids is None:
        for name in TELLS_OF_IDS:
            if getattr(config, name) != getattr(defaults, name):
                raise ConfigError(
                    f"{option(name)} has no effect on {trace.name}: it has neither block_ids nor token_ids"
                )
    for name in ("tail_rule", "id_kind", "id_scope"):
        if trace.ids == "token_ids" and getattr(config, name) is not None:
            raise ConfigError(f"{option(name)} has no effect on {trace.name}: it has token_ids, not block_ids")


def _check_columns(spec: Spec, trace: Trace) -> None:
    needs = spec.columns if isinstance(spec, EvictionPolicySpec) else ()
    lacks = [column for column in needs if column not in trace.schema.names]
    if lacks:
        raise ConfigError(
            f"{spec.kind} {spec.name} needs {', '.join(lacks)}, which {trace.name} has not; "
            f"its columns are {', '.join(trace.schema.names)}"
        )


def _choose_tokens(config: RunConfig, registry: Registry, trace: Trace) -> ChosenPart | None:
    if trace.ids is None:
        return None
    default = "ids" if trace.ids == "block_ids" else "chained"
    chosen = _choose(registry, TokenDatabaseSpec, default if config.tokens is None else config.tokens, "--tokens")
    reads = chosen.spec.reads if isinstance(chosen.spec, TokenDatabaseSpec) else ()
    if trace.ids not in reads:
        raise TraceError(f"{trace.name} has {trace.ids}; token database {chosen.spec.name} reads {', '.join(reads)}")
    return chosen


def _bytes_of(value: int | str | None, name: str) -> int | None:
    if value is None:
        return None
    count = parse_bytes(str(value))
    if count == 0:
        raise ConfigError(f"{name} = {value} must be at least 1 byte")
    return count
