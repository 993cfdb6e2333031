"""Discovery: which parts there are, who brought them, and what went wrong while loading.

:func:`load_registry` makes a fresh pluggy manager, registers the built-in module and then the
entry points of the group ``kvbench``, each by itself: one that fails is remembered with its
reason and the rest load. Nothing is kept between calls.

Environment:

``KVBENCH_DISABLE_PLUGIN_AUTOLOAD=1``  load no entry points (built-in parts only).
``KVBENCH_STRICT_PLUGINS=1``           a plugin that fails to load is an error, not a warning.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from kvbench import hookspecs
from kvbench.errors import ConfigError, PluginError, one_line
from kvbench.specs import (
    AdmissionSpec,
    CommandSpec,
    ComputeModelSpec,
    DeviceSpec,
    EvictionPolicySpec,
    ExecutorSpec,
    HashAlgorithmSpec,
    RouterPolicySpec,
    Spec,
    TokenDatabaseSpec,
    TraceFormatSpec,
    WorkloadSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUILTIN = "kvbench.builtin"
"""The module of the built-in parts, by name: it goes through the same door as everybody's."""

HOOKS: Mapping[str, type[Spec]] = {
    "kvbench_token_databases": TokenDatabaseSpec,
    "kvbench_hash_algorithms": HashAlgorithmSpec,
    "kvbench_eviction_policies": EvictionPolicySpec,
    "kvbench_router_policies": RouterPolicySpec,
    "kvbench_admission_filters": AdmissionSpec,
    "kvbench_devices": DeviceSpec,
    "kvbench_compute_models": ComputeModelSpec,
    "kvbench_trace_formats": TraceFormatSpec,
    "kvbench_workloads": WorkloadSpec,
    "kvbench_executors": ExecutorSpec,
    "kvbench_commands": CommandSpec,
}
"""Which record each hook yields."""

S = TypeVar("S", bound=Spec)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Who brings a plugin: an installed distribution. Its version is looked up when it is asked
    for, because parsing package metadata takes as long as starting click."""

    name: str
    known_version: str | None = None

    @property
    def version(self) -> str:
        if self.known_version is not None:
            return self.known_version
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(self.name)
        except PackageNotFoundError:
            return "0+unknown"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


OWN = Distribution("kvbench")


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An entry point that could not be loaded, and why."""

    entry_point: str
    distribution: Distribution
    reason: str

    def __str__(self) -> str:
        return f"plugin {self.entry_point} of {self.distribution} was skipped: {self.reason}"


@dataclass(frozen=True, slots=True)
class Part:
    """A spec and the distribution it came from."""

    spec: Spec
    distribution: Distribution


@dataclass(slots=True)
class Registry:
    """All parts by kind and name, and the plugins that failed to load."""

    parts: dict[type[Spec], dict[str, Part]] = field(default_factory=dict)
    broken: list[BrokenPlugin] = field(default_factory=list)

    def names(self, kind: type[Spec]) -> list[str]:
        """Sorted names of the parts of one kind."""
        return sorted(self.parts.get(kind, {}))

    def specs(self, kind: type[S]) -> list[S]:
        """The specs of one kind, sorted by name."""
        return [self.get(kind, name) for name in self.names(kind)]

    def get(self, kind: type[S], name: str) -> S:
        """The spec with this name. Raises ConfigError with the nearest name and the full list."""
        part = self.parts.get(kind, {}).get(name)
        if part is None:
            raise ConfigError(f"unknown {kind.kind} {name!r}; {did_you_mean(name, self.names(kind))}")
        return part.spec  # type: ignore[return-value]

    def distribution(self, spec: Spec) -> Distribution:
        """Who brought ``spec``."""
        return self.parts[type(spec)][spec.name].distribution

    def add(self, spec: Spec, distribution: Distribution) -> None:
        """Take in one part. Raises PluginError, naming both packages, when the name is taken."""
        taken = self.parts.setdefault(type(spec), {})
        if spec.name in taken:
            raise PluginError(
                f"two {spec.kind} parts are called {spec.name!r}, one in {taken[spec.name].distribution} and one in "
                f"{distribution}; uninstall one of the two packages"
            )
        taken[spec.name] = Part(spec, distribution)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Advice for an unknown name: the nearest known one, and all of them."""
    listing = f"known: {', '.join(known)}" if known else "there is none"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? ({listing})" if near else listing


def load_registry(
    plugins: Sequence[tuple[object, Distribution]] = (), *, autoload: bool = True, strict: bool = False
) -> Registry:
    """Discover all parts.

    ``plugins``   further plugin modules or objects to register, with the distribution to name.
    ``autoload``  look at installed entry points.
    ``strict``    raise PluginError for a broken plugin instead of remembering it.
    """
    registry = Registry()
    _register(registry, importlib.import_module(BUILTIN), OWN)
    for plugin, distribution in plugins:
        _register(registry, plugin, distribution)
    if autoload:
        _load_entry_points(registry, strict=strict)
    return registry


def own_version() -> str:
    """The installed version of kvbench."""
    return OWN.version


def _load_entry_points(registry: Registry, *, strict: bool) -> None:
    if not _any_entry_points():
        return
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=hookspecs.PROJECT), key=lambda point: (point.name, point.value)):
        dist = point.dist
        distribution = Distribution(dist.name, dist.version) if dist is not None else Distribution(point.value, "?")
        try:
            specs = _collect(point.load(), distribution)
        except (Exception, SystemExit) as error:  # whatever a stranger's module does must not stop the others
            broken = BrokenPlugin(point.name, distribution, one_line(error))
            if strict:
                raise PluginError(str(broken)) from error
            registry.broken.append(broken)
            continue
        for spec in specs:
            registry.add(spec, distribution)


def _any_entry_points() -> bool:
    """Whether it is worth asking importlib.metadata, whose import takes half as long as all of
    ``kvbench --help``: True if an installed distribution has a section for kvbench's plugins, or
    if one lies where only importlib.metadata can look."""
    section = f"[{hookspecs.PROJECT}]".encode()
    for place in map(Path, sys.path):
        if place.is_file():
            return True
        for pattern in ("*.dist-info/entry_points.txt", "*.egg-info/entry_points.txt"):
            for file in place.glob(pattern):
                if section in file.read_bytes():
                    return True
    return False


def _register(registry: Registry, plugin: object, distribution: Distribution) -> None:
    for spec in _collect(plugin, distribution):
        registry.add(spec, distribution)


def _collect(plugin: object, distribution: Distribution) -> list[Spec]:
    """The specs that one plugin yields. Each plugin gets a manager of its own, so that an error
    in its hooks is its own, too."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    manager.check_pending()
    specs: list[Spec] = []
    for hook, kind in HOOKS.items():
        for yielded in getattr(manager.hook, hook)():
            specs.extend(_checked(spec, kind, hook, distribution) for spec in yielded)
    return specs


def _checked(spec: Any, kind: type[Spec], hook: str, distribution: Distribution) -> Spec:
    if not isinstance(spec, kind):
        raise PluginError(f"{hook} of {distribution} yielded {spec!r}; it must yield {kind.__name__} records")
    if not isinstance(spec.name, str) or not spec.name or "," in spec.name:
        raise PluginError(f"{hook} of {distribution} yielded the name {spec.name!r}; a name is text without commas")
    return spec
