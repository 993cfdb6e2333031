"""Tables of a run file that can be typed as an option: ``key=value,…``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from kvbench.errors import ConfigError
from kvbench.pairs import key_values
from kvbench.plugins import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}
"""What values of a type are called; others are tables."""


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
    return check_table(
        key_values([head, *rest], f"{option} {text}", struct.__struct_fields__),
        struct,
        f"{option} {text}",
        strict=False,
    )


def check_table(
    table: Mapping[str, Any], struct: type[msgspec.Struct], where: str, *, strict: bool = True
) -> dict[str, Any]:
    """``table`` with each value in the type that ``struct`` gives its key; unless ``strict``, from text, too.

    Raises ConfigError, which begins with ``where`` and names the key, for one that is not known or is missing, and
    for a value that is of another type or none of those that there are.
    """
    hints = hints_of(struct)
    typed = {}
    for key, value in table.items():
        if key not in struct.__struct_fields__:
            raise ConfigError(f"{where}: unknown key {key!r}; {did_you_mean(key, struct.__struct_fields__)}")
        kinds = _kinds(hints[key])
        choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
        if choices and isinstance(value, str) and value not in choices:
            raise ConfigError(f"{where}: unknown {key} {value!r}; {did_you_mean(value, choices)}")
        try:
            typed[key] = msgspec.to_builtins(msgspec.convert(value, hints[key], strict=strict))
        except msgspec.ValidationError:
            allowed = choices or [WORDS.get(get_origin(kind) or kind, "a table") for kind in kinds]
            raise ConfigError(f"{where}: {key} = {value!r} must be {' or '.join(allowed)}") from None
    for name in _required(struct):
        if name not in table:
            raise ConfigError(f"{where}: {name} is missing")
    return typed


@cache
def hints_of(struct: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The types of a structure's keys; kept, since working them out takes longer than all else of a table."""
    return MappingProxyType(get_type_hints(struct))


@cache
def _required(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(struct) if field.required)


def _kinds(hint: Any) -> list[Any]:
    """The types that values of ``hint`` may have, besides None."""
    if get_origin(hint) in (Literal, list, dict):
        return [hint]
    return [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]


def choices_of(struct: type[msgspec.Struct]) -> dict[str, list[str]]:
    """The keys of a table, each with the words that it may have for a value; none where it takes more than words."""
    hints = hints_of(struct)
    return {name: [word for kind in _kinds(hints[name]) for word in _words(kind)] for name in struct.__struct_fields__}


def _words(kind: Any) -> list[str]:
    if kind is bool:
        return ["true", "false"]
    return [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []


def typed_tables(settings: dict[str, Any], kinds: Mapping[str, TableKind], where: str = "") -> dict[str, Any]:
    """Those of ``settings`` that are named in ``kinds``, as tables; ``where`` says which file they are of."""
    return {
        name: as_table(settings[name], kind, where + option_of(name))
        for name, kind in kinds.items()
        if name in settings
    }


def as_table(given: Any, kind: TableKind, option: str) -> Any:
    """``given`` as a table that has been checked, from an option's text, a table or a structure; None stays."""
    if isinstance(given, str):
        return parse_table(given, kind.struct, option, first=kind.first)
    if isinstance(given, dict):
        return check_table(given, kind.struct, option)
    if given is not None and not isinstance(given, kind.struct):
        raise ConfigError(f"{option} = {given!r} must be a table, or a text of the form key=value,…")
    return msgspec.to_builtins(given)


def option_of(name: str) -> str:
    """The command-line option of a configuration key."""
    return "--" + name.replace("_", "-")


def without_none(table: dict[str, Any]) -> dict[str, Any]:
    """A table of a run file, which has no null."""
    return {key: value for key, value in table.items() if value is not None}
