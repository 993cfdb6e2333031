"""Tables of a run file that can be typed as an option: ``key=value,…``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from kvbench.errors import ConfigError
from kvbench.pairs import key_values
from kvbench.plugins import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TableKind:
    """A setting that is a table.

    ``struct``  the structure of its keys.
    ``first``   the key whose value may be typed first, without the key; None: there is none.
    """

    struct: type[msgspec.Struct]
    first: str | None = None


def parse_table(text: str, struct: type[msgspec.Struct], option: str, *, first: str | None = None) -> dict[str, Any]:
    """The table of an option ``key=value,…``; the first value is that of key ``first`` if it has no key of its own."""
    head, *rest = text.split(",")
    if first is not None and "=" not in head:
        head = f"{first}={head}"
    table = key_values([head, *rest], f"{option} {text}")
    hints = get_type_hints(struct)
    for key, value in table.items():
        if key not in struct.__struct_fields__:
            raise ConfigError(f"{option} {text}: unknown key {key!r}; {did_you_mean(key, struct.__struct_fields__)}")
        hint = hints[key]
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ConfigError(f"{option} {text}: unknown {key} {value!r}; {did_you_mean(value, get_args(hint))}")
    try:
        typed = msgspec.to_builtins(msgspec.convert(table, struct, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{option} {text}: {error}") from None
    return {name: typed[name] for name in table}


def typed_tables(settings: dict[str, Any], kinds: Mapping[str, TableKind]) -> dict[str, Any]:
    """Those of ``settings`` that are named in ``kinds`` and were typed as an option, or are structures: as tables."""
    return {name: as_table(settings[name], kind, option_of(name)) for name, kind in kinds.items() if name in settings}


def as_table(given: Any, kind: TableKind, option: str) -> Any:
    """``given`` as a table, from an option's text or a structure; anything else stays as it is."""
    if isinstance(given, str):
        return parse_table(given, kind.struct, option, first=kind.first)
    return msgspec.to_builtins(given) if isinstance(given, kind.struct) else given


def option_of(name: str) -> str:
    """The command-line option of a configuration key."""
    return "--" + name.replace("_", "-")
