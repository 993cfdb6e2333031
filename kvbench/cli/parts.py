"""The option type for parts: ``NAME[,KEY=VALUE…]``, completed by the shell from the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kvbench.cli.root import registry_of

if TYPE_CHECKING:
    from kvbench.plugins import Registry
    from kvbench.specs import Spec


class PartType(click.ParamType[str]):
    """A part of one kind; its name is checked when the run is planned."""

    name = "NAME[,KEY=VALUE…]"

    def __init__(self, kind: type[Spec]) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [
            CompletionItem(spec.name, help=spec.help)
            for spec in registry_of(ctx).specs(self.kind)
            if spec.name.startswith(incomplete)
        ]


def make_part(registry: Registry, kind: type[Spec], choice: str, setting: str, *args: Any) -> tuple[str, Any]:
    """The name of the part that ``choice`` (the value of ``setting``) asks for, and the part, made with ``args``."""
    from kvbench.config import parse_part

    name, params = parse_part(choice, setting)
    spec = registry.get(kind, name)
    return name, spec.load()(*args, **spec.parse_params(params))
