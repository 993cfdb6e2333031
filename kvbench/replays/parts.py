"""Parts as a plan has them: chosen by name, parameters checked, capacities in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kvbench.config import parse_part
from kvbench.errors import ConfigError, KvbenchError, PluginError, one_line
from kvbench.specs import (
    HashAlgorithmSpec,
    ParamValue,
    Spec,
    TokenDatabaseSpec,
)
from kvbench.tokens.hashes.base import build_hash
from kvbench.units import (
    BYTE_UNITS,
    COUNT_UNITS,
    TOKEN_UNITS,
    parse_bytes,
    parse_count,
    parse_tokens,
    split_quantity,
    unknown_unit,
)

if TYPE_CHECKING:
    from fractions import Fraction

    from kvbench.plugins import Registry
    from kvbench.tierconfig import PartChoice
    from kvbench.trace.reader import Trace

S = TypeVar("S", bound=Spec)

MAX_BLOCKS = 2**30

ALGORITHM = "algorithm"
"""The parameter of a token database that names its hash algorithm."""


@dataclass(frozen=True, slots=True)
class ChosenPart:
    """A part and the parameters it is made with, defaults filled in.

    ``hashing``  the hash algorithm of a token database that is made with one.
    """

    spec: Spec
    params: dict[str, ParamValue]
    hashing: ChosenPart | None = None

    def make(self, *args: Any) -> Any:
        """Make the part. Raises PluginError, naming it, when its factory fails."""
        params: dict[str, Any] = dict(self.params)
        if self.hashing is not None:
            assert isinstance(self.hashing.spec, HashAlgorithmSpec)
            del params[ALGORITHM]
            params["hashing"] = build_hash(self.hashing.spec, self.hashing.params)
        try:
            return self.spec.load()(*args, **params)
        except (KvbenchError, MemoryError):
            raise
        except Exception as error:  # a stranger's code may raise anything
            raise PluginError(f"{self.spec.kind} {self.spec.name} cannot be made: {one_line(error)}") from error

    def to_dict(self) -> dict[str, ParamValue]:
        hashing = {} if self.hashing is None else self.hashing.params
        return {"name": self.spec.name, **self.params, **hashing}


def choose(registry: Registry, kind: type[S], choice: PartChoice, setting: str) -> ChosenPart:
    name, params = parse_part(choice, setting)
    spec = registry.get(kind, name)
    return ChosenPart(spec, spec.parse_params(params))


def choose_tokens(registry: Registry, choice: PartChoice, setting: str) -> ChosenPart:
    """A token database; what it does not take itself is for the hash algorithm that it is made with."""
    name, given = parse_part(choice, setting)
    spec = registry.get(TokenDatabaseSpec, name)
    if not spec.hashes:
        return ChosenPart(spec, spec.parse_params(given))
    own = {param.name for param in spec.params}
    if ALGORITHM not in own:
        raise PluginError(f"token database {spec.name} is made with a hash algorithm, and has no parameter {ALGORITHM}")
    params = spec.parse_params({key: value for key, value in given.items() if key in own})
    algorithm = registry.get(HashAlgorithmSpec, str(params[ALGORITHM]))
    rest = {key: value for key, value in given.items() if key not in own}
    return ChosenPart(spec, params, ChosenPart(algorithm, algorithm.parse_params(rest)))


def check_columns(part: ChosenPart, trace: Trace) -> None:
    """Raise ConfigError for a part, or the value of one of its parameters, that is about a column which the trace
    has not."""
    spec = part.spec
    needs = dict.fromkeys(getattr(spec, "columns", ()), "")
    for param in spec.params:
        needs |= {
            column: f": {param.name} = {value}" for value, column in param.needs if part.params.get(param.name) == value
        }
    for column, setting in needs.items():
        if column not in trace.schema.names:
            raise ConfigError(
                f"{spec.kind} {spec.name}{setting} needs {column}, which {trace.name} has not; "
                f"its columns are {', '.join(trace.schema.names)}"
            )


def parse_capacity(
    capacity: int | str, block_bytes: int | None, *, setting: str = "--capacity", block_tokens: int | None = None
) -> tuple[int | None, Fraction | None]:
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
            raise ConfigError(f"{setting} = {text}: a share is above 0 % and at most 100 %")
        return None, number / 100
    if unit in BYTE_UNITS:
        if block_bytes is None:
            raise ConfigError(f"{setting} = {text} is in bytes; say with --block-bytes or --model how large a block is")
        blocks = parse_bytes(text) // block_bytes
        if blocks == 0:
            raise ConfigError(f"{setting} = {text} is smaller than one block of {block_bytes:,} bytes")
    elif unit in TOKEN_UNITS:
        if block_tokens is None:
            raise ConfigError(f"{setting} = {text} is in tokens, and the trace has no block size")
        blocks = parse_tokens(text) // block_tokens
        if blocks == 0:
            raise ConfigError(f"{setting} = {text} is smaller than one block of {block_tokens:,} tokens")
    elif unit not in COUNT_UNITS:
        raise ConfigError(f"{setting} = {text}: {unknown_unit(unit, (*COUNT_UNITS, *TOKEN_UNITS, *BYTE_UNITS, '%'))}")
    else:
        blocks = parse_count(text)
        if blocks == 0:
            raise ConfigError(f"{setting} = {text}: a tier holds at least one block")
    if blocks > MAX_BLOCKS:
        raise ConfigError(f"{setting} = {text} is {blocks:,} blocks; a tier holds at most {MAX_BLOCKS:,}")
    return blocks, None
