"""The option type for parts: ``NAME[,KEY=VALUE…]``, completed by the shell from the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from kvbench.cli.root import registry_of

if TYPE_CHECKING:
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
