"""The run configuration: TOML or options in, one frozen structure out.

Every key of a TOML run file is an option of ``kvbench replay`` with dashes for underscores, and
the other way round; options override the file.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kvbench.atomic import same_file
from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.specs import ParamValue
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

PartTable = dict[str, ParamValue]
PartChoice = str | PartTable
Capacity = int | str

NOT_PART_OF_RESULT = ("trace", "output", "events", "force")
"""Keys that say where files are; they stay out of a result's manifest."""


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
    ``workers``       engine replicas, each with a cache of its own.
    ``router``        who serves a request; None: max-prefix if there are several workers.
    ``capacity``      of each worker: blocks (``10k``), bytes (``64GiB``), a share of the trace's
                      distinct blocks (``10%``), or ``infinite``. Several: one cell each.
    ``policy``        eviction policy; None: lru, unless the capacity is infinite. Several: one cell each.
    ``order``         how a request is swept (semantics §5.1).
    ``belady``        the Belady bound beside the result: ``auto``, ``on`` or ``off``.
    ``seen``          the set of keys ever seen: ``exact`` or ``off``.
    ``seed``          of every random choice.
    ``on_error``      a bad row is an error (``fail``) or left out and counted (``skip``).
    ``output``, ``events``  Parquet files to write.
    ``force``         overwrite them.
    """

    trace: str | None = None
    block_tokens: int | None = None
    tail_rule: Literal["ceil", "floor"] | None = None
    id_kind: Literal["prefix", "content"] | None = None
    id_scope: Literal["file", "session", "global"] | None = None
    block_bytes: int | str | None = None
    tokens: PartChoice | None = None
    tails: Literal["drop", "keep"] = "drop"
    workers: int = 1
    router: PartChoice | None = None
    capacity: Capacity | list[Capacity] = "infinite"
    policy: PartChoice | list[PartChoice] | None = None
    order: Literal["tail-first", "head-first", "access"] = "tail-first"
    belady: Literal["auto", "on", "off"] = "auto"
    seen: Literal["exact", "off"] = "exact"
    seed: int = 0
    on_error: Literal["fail", "skip"] = "fail"
    output: str | None = None
    events: str | None = None
    force: bool = False

    def check(self) -> RunConfig:
        """This configuration, or ConfigError for a setting that is out of range or has no effect."""
        for name in ("workers", "block_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{option(name)} = {value} must be at least 1")
        if self.block_tokens is not None and self.block_tokens > MAX_TOKENS:
            raise ConfigError(f"--block-tokens = {self.block_tokens} must be at most {MAX_TOKENS:,}")
        if self.workers == 1 and self.router is not None:
            raise ConfigError("--router has no effect with one worker; give --workers, or leave it out")
        if self.capacity == "infinite" and self.policy is not None:
            raise ConfigError("--policy has no effect with infinite capacity: nothing is ever evicted; give --capacity")
        if self.capacity == "infinite" and self.order != "tail-first":
            raise ConfigError(f"--order {self.order} has no effect with infinite capacity; give --capacity")
        if self.capacity == "infinite" and self.belady == "on":
            raise ConfigError("--belady on has no effect with infinite capacity; give --capacity")
        if self.output is not None and self.events is not None and same_file(self.output, self.events):
            raise ConfigError(f"--output and --events name the same file, {self.output}")
        if self.force and self.output is None and self.events is None:
            raise ConfigError("--force has no effect without --output or --events")
        return self

    @property
    def is_matrix(self) -> bool:
        """Whether several policies or capacities are asked for."""
        return isinstance(self.capacity, list) or isinstance(self.policy, list)

    def cells(self) -> list[RunConfig]:
        """One configuration for each policy and capacity, capacities in the outer loop."""
        capacities = self.capacity if isinstance(self.capacity, list) else [self.capacity]
        policies = self.policy if isinstance(self.policy, list) else [self.policy]
        return [
            msgspec.structs.replace(self, capacity=capacity, policy=policy).check()
            for capacity in capacities
            for policy in policies
        ]

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values; those that are None are left out."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if value is not None}


def option(name: str) -> str:
    """The command-line option of a configuration key."""
    return "--" + name.replace("_", "-")


def parse_part(choice: PartChoice, setting: str) -> tuple[str, dict[str, ParamValue]]:
    """Name and parameters of a part from ``name,key=value`` or from a TOML table with ``name``."""
    if isinstance(choice, dict):
        params = dict(choice)
        name = params.pop("name", None)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{setting} = {choice!r} needs a key 'name'")
        return name, params
    name, *pairs = choice.split(",")
    params = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{setting} = {choice!r}: {pair!r} is not of the form key=value")
        params[key.strip()] = value.strip()
    return name.strip(), params


def load_config(path: Path | None, overrides: dict[str, Any]) -> RunConfig:
    """The configuration of a TOML file (if any) with ``overrides`` on top.

    Raises ConfigError for a file that cannot be read, an unknown key or a wrong type.
    """
    settings: dict[str, Any] = {} if path is None else _read_toml(path)
    settings.update(overrides)
    where = f"{path}: " if path is not None else ""
    for name in settings:
        if name not in RunConfig.__struct_fields__:
            raise ConfigError(f"{where}unknown key {name!r}; {did_you_mean(name, RunConfig.__struct_fields__)}")
    capacity = settings.get("capacity")
    if isinstance(capacity, str) and "," in capacity:
        settings["capacity"] = [part.strip() for part in capacity.split(",")]
    try:
        config = msgspec.convert(settings, RunConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}{error}") from None
    for name in ("capacity", "policy"):
        if getattr(config, name) == []:
            raise ConfigError(f"{where}{name} is an empty list")
    config.cells()
    return config


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
