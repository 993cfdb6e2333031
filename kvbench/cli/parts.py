"""The option type for parts: ``NAME[,KEY=VALUE…]``, completed by the shell from the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kvbench.cli.root import registry_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbench.plugins import Registry
    from kvbench.specs import Spec


def pieces(incomplete: str, values: Mapping[str, Iterable[str]]) -> list[CompletionItem[Any]]:
    """Completions of ``KEY=VALUE,…``: keys that are not there yet, and values behind ``KEY=``."""
    head, comma, last = incomplete.rpartition(",")
    key, equals, begun = last.partition("=")
    if equals:
        return [
            CompletionItem(f"{head}{comma}{key}={value}") for value in values.get(key, ()) if value.startswith(begun)
        ]
    given = {piece.partition("=")[0] for piece in head.split(",")}
    return [CompletionItem(f"{head}{comma}{name}=") for name in values if name.startswith(last) and name not in given]


class PartType(click.ParamType[str]):
    """A part of one kind; its name is checked when the run is planned."""

    name = "NAME[,KEY=VALUE…]"

    def __init__(self, kind: type[Spec]) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        name, comma, rest = incomplete.partition(",")
        specs = registry_of(ctx).specs(self.kind)
        if not comma:
            return [CompletionItem(spec.name, help=spec.help) for spec in specs if spec.name.startswith(name)]
        params = next((spec.params for spec in specs if spec.name == name), ())
        words = {each.name: ("true", "false") if each.type is bool else each.choices for each in params}
        helps = {each.name: each.help for each in params}
        return [
            CompletionItem(f"{name},{item.value}", help=helps.get(item.value.rpartition(",")[2].rstrip("=")))
            for item in pieces(rest, words)
        ]


def make_part(registry: Registry, kind: type[Spec], choice: str, setting: str, *args: Any) -> tuple[str, Any]:
    """The name of the part that ``choice`` (the value of ``setting``) asks for, and the part, made with ``args``."""
    from kvbench.config import parse_part

    name, params = parse_part(choice, setting)
    spec = registry.get(kind, name)
    return name, spec.load()(*args, **spec.parse_params(params))
