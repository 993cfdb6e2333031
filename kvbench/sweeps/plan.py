"""What a sweep runs: shared settings, combinations of others, and a grid that is taken for each."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbench.config import RunConfig, parse_part, read_toml, typed_settings
from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.specs import (
    AdmissionSpec,
    ComputeModelSpec,
    EvictionPolicySpec,
    RouterPolicySpec,
    Spec,
    TokenDatabaseSpec,
)
from kvbench.sweeps.paths import NOT_OF_CELLS, flat, get_setting, kind_of, value_of, values_of, with_settings
from kvbench.tables import option_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kvbench.plugins import Registry

MAX_CELLS = 100_000
SEED = "seed"

LISTED = ("capacity", "policy", "router")
"""Settings of a replay that may have several values: in a sweep they are axes."""

GRID, CELL = "grid", "cell"
"""Tables of a sweep file beside the keys of a run file."""

PARTS_OF_RUNS: Mapping[str, type[Spec]] = {
    "policy": EvictionPolicySpec,
    "router": RouterPolicySpec,
    "tokens": TokenDatabaseSpec,
    "compute": ComputeModelSpec,
}
PARTS_OF_TIERS: Mapping[str, type[Spec]] = {"policy": EvictionPolicySpec, "admission": AdmissionSpec}


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell: its ``number`` from 0, what it has on each axis, and all its ``settings``, tables as tables."""

    number: int
    axes: dict[str, Any]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep runs.

    ``trace``         path of the trace, which all cells share.
    ``base``          settings that all cells share: keys of a run file.
    ``axes``          setting path → its values: a grid, whose first axis is the outermost.
    ``combinations``  settings by path, each on top of ``base``; the grid is taken for each. None: just the grid.
    """

    trace: str
    base: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, list[Any]] = field(default_factory=dict)
    combinations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """The settings in which cells differ: those of combinations, then those of the grid."""
        return list(dict.fromkeys([*itertools.chain.from_iterable(self.combinations), *self.axes]))

    def cells(self) -> list[PlannedCell]:
        """All cells, in their order. Raises ConfigError for a sweep that is too large, and for a cell whose settings
        cannot be put together."""
        count = math.prod(len(values) for values in self.axes.values()) * max(len(self.combinations), 1)
        if count > MAX_CELLS:
            raise ConfigError(f"a sweep has at most {MAX_CELLS:,} cells; this one has {count:,}")
        both = next((path for each in self.combinations for path in each if path in self.axes), None)
        if both is not None:
            raise ConfigError(f"{both} stands in a [[{CELL}]] and in the grid, whose values it would not keep")
        return list(self._cells())

    def _cells(self) -> Iterator[PlannedCell]:
        paths, base = self.paths, typed_settings(self.base)
        number = itertools.count()
        for combination in self.combinations or [{}]:
            shared = with_settings(base, combination)
            for values in itertools.product(*self.axes.values()):
                settings = typed_settings(with_settings(shared, dict(zip(self.axes, values, strict=True))))
                yield PlannedCell(next(number), {path: get_setting(settings, path) for path in paths}, settings)


def make_plan(
    trace: str | Path | None,
    *,
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    vary: Mapping[str, Any] | None = None,
    cells: Sequence[Mapping[str, Any]] = (),
) -> SweepPlan:
    """The plan of a sweep file with what else is given on top.

    ``file``      TOML: the keys of a run file for all cells, ``[grid]`` of setting path → list or range, and
                  ``[[cell]]`` tables.
    ``settings``  keys of a run file. Several capacities, policies or routers are an axis, and so are ``seeds``.
    ``vary``      setting path → a text like ``1k,10k`` or ``1k..1M``, a list, or one value. It replaces an axis of
                  the file.
    ``cells``     combinations, each a table of settings by path.

    Raises ConfigError for unknown settings, values of wrong types and a sweep without a trace.
    """
    base: dict[str, Any] = {}
    axes: dict[str, list[Any]] = {}
    combinations = list(cells)
    if file is not None:
        base = read_toml(file)
        where = f"{file}: "
        axes, found = _tables_of(base, where)
        combinations = [*found, *combinations]
        axes = _take_lists(base, where) | axes
    given = dict(settings or {})
    both = next((path for path in vary or {} if path in given), None)
    if both is not None:
        raise ConfigError(f"{option_of(both)} and --vary {both} both say what {both} is; give one of them")
    axes |= _take_lists(given, "")
    base |= given
    axes |= _take_seeds(base)
    axes |= {path: values_of(path, value, f"--vary {path}") for path, value in (vary or {}).items()}
    trace = base.pop("trace", None) if trace is None else trace
    base.pop("trace", None)
    if trace is None:
        raise ConfigError("no trace: name one on the command line, or as 'trace' in the sweep file")
    _check_shared(base)
    if SEED in axes:
        axes[SEED] = axes.pop(SEED)  # runs of one setting stand together
    parsed = [
        {path: value_of(path, value, f"[[{CELL}]] {path}") for path, value in flat(each)} for each in combinations
    ]
    return SweepPlan(str(trace), {path: value_of(path, base[path], path) for path in base}, axes, parsed)


def check_parts(cells: Sequence[PlannedCell], registry: Registry) -> None:
    """Raise ConfigError for a part, or a parameter of one, that there is not: every cell that names it would fail."""
    checked = set()
    for cell in cells:
        for kind, name, params in parts_of(cell.settings):
            names = (kind, name, *params)
            if names in checked:
                continue
            checked.add(names)
            spec = registry.get(kind, name)
            # A token database that hashes takes the parameters of its hash algorithm, too.
            if not (isinstance(spec, TokenDatabaseSpec) and spec.hashes):
                spec.check_names(params)


def parts_of(settings: Mapping[str, Any]) -> Iterator[tuple[type[Spec], str, Mapping[str, Any]]]:
    """Kind, name and parameters of the parts that settings name."""
    for table, kinds in [(settings, PARTS_OF_RUNS), *((tier, PARTS_OF_TIERS) for tier in settings.get("tiers") or ())]:
        for key, kind in kinds.items():
            if isinstance(table.get(key), (str, dict)):
                name, params = parse_part(table[key], key)
                yield kind, name, params


def _tables_of(document: dict[str, Any], where: str) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """The grid and the combinations of a sweep file; takes them out of ``document``."""
    grid, combinations = document.pop(GRID, {}), document.pop(CELL, [])
    if not isinstance(grid, dict):
        raise ConfigError(f"{where}{GRID} must be a table of settings and their values")
    if not isinstance(combinations, list) or not all(isinstance(each, dict) for each in combinations):
        raise ConfigError(f"{where}{CELL} must be tables: write [[{CELL}]] above each")
    axes = {path: values_of(path, values, f"{where}[{GRID}] {path}") for path, values in flat(grid)}
    for path in axes:
        if path in document:
            raise ConfigError(f"{where}{path} stands in [{GRID}] and among the settings of all cells")
    return axes, combinations


def _take_lists(settings: dict[str, Any], where: str) -> dict[str, list[Any]]:
    """The axes among the settings of a replay; takes them out of ``settings``."""
    axes = {}
    for name in LISTED:
        if name not in settings:
            continue
        values = values_of(name, settings[name], f"{where}{name}") if name == "capacity" else settings[name]
        if isinstance(values, (list, tuple)) and (name != "capacity" or len(values) > 1):
            if not values:
                raise ConfigError(f"{where}{name} is an empty list")
            axes[name] = [value_of(name, each, name) for each in values]
            del settings[name]
    return axes


def _take_seeds(settings: dict[str, Any]) -> dict[str, list[Any]]:
    """The axis that several ``seeds`` are, from ``seed`` on, wherever either is given; takes them out of
    ``settings``."""
    if "seeds" not in settings:
        return {}
    count, first = (value_of(SEED, value, "--seeds") for value in (settings.pop("seeds"), settings.get(SEED, 0)))
    if count < 1:
        raise ConfigError(f"--seeds = {count} must be at least 1")
    if count == 1:
        return {}
    settings.pop(SEED, None)
    return {SEED: list(range(first, first + count))}


def _check_shared(base: Mapping[str, Any]) -> None:
    known = RunConfig.__struct_fields__
    for name in base:
        if name in NOT_OF_CELLS:
            raise ConfigError(f"{name} has no place in a sweep, which writes one table; kvbench replay takes it")
        if name not in known:
            raise ConfigError(f"unknown key {name!r}; {did_you_mean(name, [*known, GRID, CELL])}")
        kind_of(name, name)
