"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvbench.cli.parts import PartType
from kvbench.specs import TokenDatabaseSpec

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def block_options(uses_of_bytes: str) -> Callable[[F], F]:
    """How prompts become blocks, and which of those are cached.

    ``uses_of_bytes``  what the command does with ``--block-bytes``, for its help.
    """
    options = (
        click.option(
            "--tokens",
            type=PartType(TokenDatabaseSpec),
            help="How prompts become keys.  [default: by the trace's columns]",
        ),
        click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block, instead of what the file says."),
        click.option("--block-bytes", metavar="SIZE", help=f"Bytes of a full block, for {uses_of_bytes}."),
        click.option(
            "--tail-rule",
            type=click.Choice(["ceil", "floor"]),
            help="Whether a partial last block has an id (ceil) or none.",
        ),
        click.option(
            "--id-kind",
            type=click.Choice(["prefix", "content"]),
            help="What a block id stands for, instead of what the file says: its block and all before it, or its own "
            "tokens.",
        ),
        click.option(
            "--id-scope",
            type=click.Choice(["file", "session", "global"]),
            help="Where an id means the same, instead of what the file says.",
        ),
        click.option(
            "--tails",
            type=click.Choice(["drop", "keep"]),
            help="Cache full blocks only, or partial last ones, too.  [default: drop]",
        ),
    )

    def decorate(command: F) -> F:
        for option in reversed(options):  # as a stack of decorators is applied: help shows them in this order
            command = option(command)
        return command

    return decorate


on_error_option = click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    help="A bad row ends the run, or is left out and counted.  [default: fail]",
)
