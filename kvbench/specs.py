"""The records that hooks yield: what a part is called, what makes it, what it may be told.

A record is data. Reading one runs nothing of the plugin: a factory may be given as a string
``"package.module:attribute"``, which is imported only when the part is used. That is how the
built-in parts stay out of ``kvbench --help``.
"""

from __future__ import annotations

import difflib
import importlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kvbench.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ParamValue = bool | int | float | str

_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a part.

    ``type`` is one of bool, int, float, str. ``default`` of ``None`` makes the parameter
    required. ``choices``, ``minimum`` and ``maximum`` bound the values that are accepted; a float
    must be finite in any case. An ``optional`` one is left out when it is not given. ``needs`` are pairs of a
    value and the trace column that it is about; a trace without that is refused.
    """

    name: str
    type: type[bool] | type[int] | type[float] | type[str]
    default: ParamValue | None
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    optional: bool = False
    needs: tuple[tuple[ParamValue, str], ...] = ()

    def parse(self, value: ParamValue, owner: str) -> ParamValue:
        """``value`` (text from the command line, or typed from TOML) as this parameter's type."""
        try:
            parsed = self._convert(value)
        except (ValueError, KeyError, OverflowError):
            raise ConfigError(
                f"{owner}: parameter {self.name} = {value!r} is not of type {self.type.__name__}"
            ) from None
        if isinstance(parsed, float) and not math.isfinite(parsed):
            raise ConfigError(f"{owner}: parameter {self.name} = {value!r} must be a finite number")
        if self.choices and parsed not in self.choices:
            raise ConfigError(f"{owner}: parameter {self.name} = {value!r} is not one of {', '.join(self.choices)}")
        if self.minimum is not None and not isinstance(parsed, str) and not parsed >= self.minimum:
            raise ConfigError(f"{owner}: parameter {self.name} = {value!r} is below {self.minimum:g}")
        if self.maximum is not None and not isinstance(parsed, str) and not parsed <= self.maximum:
            raise ConfigError(f"{owner}: parameter {self.name} = {value!r} is above {self.maximum:,.12g}")
        return parsed

    def _convert(self, value: ParamValue) -> ParamValue:
        if self.type is bool:
            return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
        if isinstance(value, bool):
            raise ValueError(value)
        if self.type is int and isinstance(value, float) and not value.is_integer():
            raise ValueError(value)
        return self.type(value)


@dataclass(frozen=True, slots=True)
class Spec:
    """What every part says of itself.

    ``name``     what users type.
    ``factory``  makes the part; a callable, or ``"package.module:attribute"``.
    ``help``     one line for listings.
    ``params``   the parameters the factory takes by keyword.
    ``source``   where the idea comes from (a paper, a system and version), or empty.
    """

    kind: ClassVar[str] = "part"

    name: str
    factory: Callable[..., Any] | str
    help: str
    params: tuple[Param, ...] = ()
    source: str = ""

    def load(self) -> Callable[..., Any]:
        """The factory itself, imported now if it was given as a string."""
        if not isinstance(self.factory, str):
            return self.factory
        module, _, attribute = self.factory.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
        except (ImportError, AttributeError) as error:
            raise PluginError(f"{self.kind} {self.name}: cannot load {self.factory!r}: {error}") from error

    def check_names(self, given: Iterable[str]) -> None:
        """Raise ConfigError for the name of a parameter that this part does not take."""
        known = sorted(param.name for param in self.params)
        for name in given:
            if name not in known:
                raise ConfigError(f"{self.kind} {self.name}: unknown parameter {name!r}; {_takes(name, known)}")

    def parse_params(self, given: dict[str, ParamValue]) -> dict[str, ParamValue]:
        """The full set of parameters: ``given`` checked against the declared ones, defaults filled in."""
        self.check_names(given)
        owner = f"{self.kind} {self.name}"
        parsed: dict[str, ParamValue] = {}
        for param in self.params:
            if param.name in given:
                parsed[param.name] = param.parse(given[param.name], owner)
            elif param.optional:
                continue
            elif param.default is None:
                raise ConfigError(f"{owner}: parameter {param.name} ({param.help}) must be given")
            else:
                parsed[param.name] = param.default
        return parsed


def _takes(name: str, known: list[str]) -> str:
    """What to say to someone who gave ``name``: the nearest parameter, and all there are."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    listing = f"it takes {', '.join(known)}" if known else "it takes none"
    return f"{listing}; did you mean {near[0]!r}?" if near else listing


@dataclass(frozen=True, slots=True)
class TokenDatabaseSpec(Spec):
    """Turns record batches into keys. ``factory(facts, **params)`` makes a
    :class:`kvbench.tokens.TokenDatabase` for a trace with these
    :class:`kvbench.trace.schema.TraceFacts`.

    ``reads``   the columns it can key: ``"block_ids"``, ``"token_ids"`` or both.
    ``hashes``  it takes a parameter ``algorithm`` and the parameters of that hash algorithm beside its
                own; the factory is then given ``hashing``, a :class:`kvbench.tokens.ChainHash`.
    ``tails``   it can key the partial last block of a prompt, which is what ``--tails keep`` asks for.
    """

    kind: ClassVar[str] = "token database"
    reads: tuple[str, ...] = ("token_ids",)
    hashes: bool = False
    tails: bool = True


@dataclass(frozen=True, slots=True)
class HashAlgorithmSpec(Spec):
    """Hashes a block of tokens with the hash of all before it. ``factory(**params)`` makes a
    :class:`kvbench.tokens.ChainHash`.

    ``layout``   the bytes that are hashed, in a few words.
    ``root``     what stands for the block before the first one.
    ``needs``    packages that must be installed beside kvbench.
    ``caution``  why its hashes are not to be relied on, or empty.
    """

    kind: ClassVar[str] = "hash algorithm"
    layout: str = ""
    root: str = ""
    needs: tuple[str, ...] = ()
    caution: str = ""


@dataclass(frozen=True, slots=True)
class EvictionPolicySpec(Spec):
    """Orders the slots of one tier. ``factory(context, **params)`` makes a
    :class:`kvbench.eviction.EvictionPolicy` for the given :class:`kvbench.eviction.PolicyContext`.

    ``columns``      trace columns that the policy looks at; a trace without them is refused.
    ``looks_ahead``  the policy needs to know when each block is used next (``view.next_use``).
    """

    kind: ClassVar[str] = "eviction policy"
    columns: tuple[str, ...] = ()
    looks_ahead: bool = False


@dataclass(frozen=True, slots=True)
class RouterPolicySpec(Spec):
    """Picks a worker for each request. ``factory(context, **params)`` makes a
    :class:`kvbench.routing.RouterPolicy` for the given :class:`kvbench.routing.RouterContext`.

    ``columns``  trace columns that the router looks at (``session_id``, ``tenant``); a trace without them
                 is refused.
    ``uses``     trace columns that it looks at where there are such.
    ``index``    how the original learns who holds what, as ``--index`` has it; it is what a run takes unless it
                 says so itself. Empty: by events.
    """

    kind: ClassVar[str] = "router policy"
    columns: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    index: str = ""


@dataclass(frozen=True, slots=True)
class AdmissionSpec(Spec):
    """Says which blocks may enter a tier. ``factory(context, **params)`` makes a
    :class:`kvbench.cache.AdmissionFilter` for the given :class:`kvbench.cache.AdmissionContext`.
    """

    kind: ClassVar[str] = "admission filter"


@dataclass(frozen=True, slots=True)
class DeviceSpec(Spec):
    """Times reads and writes of a tier. ``factory(name, **params)`` makes a
    :class:`kvbench.serving.device.Device`; ``name`` is the spec's own.
    """

    kind: ClassVar[str] = "device"


@dataclass(frozen=True, slots=True)
class ComputeModelSpec(Spec):
    """Times the steps of an engine. ``factory(context, **params)`` makes a
    :class:`kvbench.serving.compute.ComputeModel` for the given :class:`kvbench.serving.compute.ComputeContext`.

    ``linear``   parameters that its times are linear in, which ``kvbench fit`` finds by least squares; where
                 ``mix`` is one of its parameters, with ``mix=sum``. They stay at least 0 if their minimum is 0.
    ``curved``   parameters above 0 that it finds by descent from their defaults.
    ``caution``  where its figures are not to be relied on, or empty.
    """

    kind: ClassVar[str] = "compute model"
    linear: tuple[str, ...] = ()
    curved: tuple[str, ...] = ()
    caution: str = ""


@dataclass(frozen=True, slots=True)
class TraceFormatSpec(Spec):
    """Reads a foreign trace. ``factory(**params)`` makes a :class:`kvbench.trace.formats.TraceFormat`."""

    kind: ClassVar[str] = "trace format"


@dataclass(frozen=True, slots=True)
class WorkloadSpec(Spec):
    """Makes a synthetic trace. ``factory(seed, **params)`` returns a
    :class:`kvbench.trace.synth.Workload`.
    """

    kind: ClassVar[str] = "workload"


@dataclass(frozen=True, slots=True)
class ExecutorSpec(Spec):
    """Runs the cells of a sweep somewhere. ``factory(**params)`` makes a :class:`kvbench.sweeps.executor.Executor`."""

    kind: ClassVar[str] = "executor"


@dataclass(frozen=True, slots=True)
class CommandSpec(Spec):
    """Adds ``kvbench NAME``. ``factory`` is a :class:`click.Command` (or the string that names one)."""

    kind: ClassVar[str] = "command"


SPEC_KINDS: tuple[type[Spec], ...] = (
    TokenDatabaseSpec,
    HashAlgorithmSpec,
    EvictionPolicySpec,
    RouterPolicySpec,
    AdmissionSpec,
    DeviceSpec,
    ComputeModelSpec,
    TraceFormatSpec,
    WorkloadSpec,
    ExecutorSpec,
    CommandSpec,
)
