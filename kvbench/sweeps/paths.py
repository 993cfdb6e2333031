"""Setting paths: the keys of a run file, dotted into its tables (``arrivals.rate``, ``tiers.cpu.capacity``)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, get_args

from kvbench.config import TABLES, RunConfig, parse_part, typed_settings
from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.serveconfig import LinkConfig
from kvbench.sweeps.values import expand, split_values
from kvbench.tables import check_table, hints_of
from kvbench.tierconfig import TierConfig
from kvbench.units import COUNT_UNITS, parse_count, split_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import msgspec

    from kvbench.sweeps.values import Kind

NOT_OF_CELLS = ("trace", "output", "events", "timeline", "timeline_every", "sample", "force")
"""Keys of a run file that no cell may set: all cells have one trace, and none writes files of its own."""

PARTS = ("policy", "router", "tokens", "compute")
"""Settings that are parts; ``policy.small`` is a parameter."""

NAMED: Mapping[str, type[msgspec.Struct]] = {"tiers": TierConfig, "links": LinkConfig}
"""Settings that are lists of tables, which paths go into by name."""


def kind_of(path: str, where: str) -> Kind:
    """What the values of the setting are. Raises ConfigError for an unknown one."""
    field = _field(path, where)
    if field is None:
        return "number"
    struct, key = field
    kinds = set(get_args(hints_of(struct)[key])) | {hints_of(struct)[key]}
    if float in kinds:
        return "number"
    return "whole" if int in kinds and str not in kinds else "text"


def values_of(path: str, given: Any, where: str) -> list[Any]:
    """The values of an axis: ``given`` is a text (a list as it is typed), a list whose texts may be ranges, or one
    value. Raises ConfigError for values of the wrong type and for an empty list."""
    kind = kind_of(path, where)
    items = given if isinstance(given, (list, tuple)) else [given]
    values: list[Any] = []
    for item in split_values(given) if isinstance(given, str) and path != "tiers" else items:
        expanded = expand(item, kind, where) if isinstance(item, str) else [item]
        values += [value_of(path, each, where) for each in expanded]
    if not values:
        raise ConfigError(f"{where}: no value is given")
    return values


def value_of(path: str, value: Any, where: str) -> Any:
    """``value`` in the type of its setting, from text, too. A count of a setting that takes sizes becomes a number."""
    if path == "tiers":
        return _stack(value, where)
    field = _field(path, where)
    if field is None:
        return _number(value) if isinstance(value, str) else value
    struct, key = field
    if path in TABLES or path in NAMED:
        return value  # typed_settings reads it
    needed = {"name": "x"} if "name" in struct.__struct_fields__ else {}
    typed = check_table({**needed, key: value}, struct, where, strict=not isinstance(value, str))[key]
    if isinstance(typed, str) and int in get_args(hints_of(struct)[key]):
        return _count(typed)
    return typed


def _stack(given: Any, where: str) -> list[Any]:
    """A stack of tiers, from a list of them or from a text that parts them by semicolons."""
    if isinstance(given, str):
        given = [tier.strip() for tier in given.split(";")]
    if not isinstance(given, (list, tuple)):
        raise ConfigError(
            f"{where}: {given!r} is no stack of tiers; write for example 'gpu,capacity=1k; cpu,capacity=9k'"
        )
    return list(typed_settings({"tiers": list(given)}, f"{where}: ")["tiers"])


def get_setting(settings: Mapping[str, Any], path: str) -> Any:
    """The value at ``path``; None where there is none."""
    node: Any = settings
    for step in path.split("."):
        if isinstance(node, list):
            node = next((each for each in node if each.get("name") == step), None)
        else:
            node = node.get(step) if isinstance(node, dict) else None
    return node


def with_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` (with tables as tables) with the value at each path of ``changes``. Raises ConfigError for a tier
    that there is not, and for the parameter of a part that is not named."""
    changed: dict[str, Any] = copy.deepcopy(dict(settings))
    for path, value in changes.items():
        _set(changed, path, value)
    return changed


def flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Path and value of each setting of a table of a sweep file, which may have tables of its own."""
    for key, value in table.items():
        if isinstance(value, dict) and (key in TABLES or key in NAMED):
            for inner, each in value.items():
                if key in NAMED and isinstance(each, dict):
                    yield from ((f"{key}.{inner}.{last}", found) for last, found in each.items())
                else:
                    yield f"{key}.{inner}", each
        elif isinstance(value, dict) and key in PARTS and "name" not in value:
            yield from ((f"{key}.{parameter}", each) for parameter, each in value.items())
        else:
            yield key, value


def _field(path: str, where: str) -> tuple[type[msgspec.Struct], str] | None:
    """The structure and the key that ``path`` ends in; None for a parameter of a part."""
    first, *rest = path.split(".")
    known = [name for name in RunConfig.__struct_fields__ if name not in (*NOT_OF_CELLS, "seeds")]
    if first not in known:
        if first in NOT_OF_CELLS:
            raise ConfigError(f"{where}: cells cannot differ in {first}")
        raise ConfigError(f"{where}: unknown setting {path!r}; {did_you_mean(first, known)}")
    if not rest:
        return RunConfig, first
    if first in PARTS and len(rest) == 1:
        return None
    struct: type[msgspec.Struct] | None = None
    if first in TABLES:
        struct = TABLES[first].struct
    elif first in NAMED:
        struct, rest = NAMED[first], rest[1:]
        if len(rest) == 2 and rest[0] in ("policy", "device", "admission", "quotas"):
            return None
    if struct is None or len(rest) != 1:
        raise ConfigError(f"{where}: {path!r} is no setting: {_form(first)}")
    if rest[0] not in struct.__struct_fields__ or (first in NAMED and rest[0] == "name"):
        known = [name for name in struct.__struct_fields__ if not (first in NAMED and name == "name")]
        raise ConfigError(f"{where}: unknown setting {path!r}; {did_you_mean(rest[0], known)}")
    return struct, rest[0]


def _form(first: str) -> str:
    if first in NAMED:
        return f"write {first}.NAME.KEY"
    return f"write {first}.KEY" if first in (*TABLES, *PARTS) else f"{first} has no keys"


def _set(settings: dict[str, Any], path: str, value: Any) -> None:
    first, *rest = path.split(".")
    if not rest:
        settings[first] = value
        return
    node: Any = settings
    if first in NAMED:
        node, rest = _named(settings, first, rest[0]), rest[1:]
        first, rest = rest[0], rest[1:]
    if not rest:
        node[first] = value
        return
    if first in TABLES or first == "quotas":
        node[first] = {**(node.get(first) or {}), rest[0]: value}
        return
    if node.get(first) is None:
        raise ConfigError(f"{path} is a parameter of a part, and {path.rpartition('.')[0]} names none")
    name, params = parse_part(node[first], path)
    node[first] = {"name": name, **params, rest[0]: value}


def _named(settings: dict[str, Any], field: str, name: str) -> dict[str, Any]:
    tables: list[dict[str, Any]] = settings.setdefault(field, [])
    found = next((table for table in tables if table.get("name") == name), None)
    if found is None:
        if "preset" not in settings:
            known = [str(table.get("name")) for table in tables]
            raise ConfigError(f"{field}.{name}: nothing is called {name!r}; {did_you_mean(name, known)}")
        found = {"name": name}  # the preset's, which is matched by name
        tables.append(found)
    return found


def _count(text: str) -> int | str:
    """A count such as ``10k`` as a number; sizes in other units stay as they are."""
    try:
        return parse_count(text) if split_quantity(text)[1] in COUNT_UNITS else text
    except ConfigError:
        return text


def _number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
