"""Writes the generated part of the README's section on answers."""

from __future__ import annotations

import readme

from kvbench.answers.recipes import RECIPES
from kvbench.cli.answer import COMMANDS, answer


def questions() -> None:
    """Print a table of the questions, with what each command says of itself."""
    context = readme.click.Context(answer)
    rows = []
    for name in COMMANDS:
        command = answer.get_command(context, name)
        assert command is not None
        assert command.help is not None
        about = " ".join(command.help.split("\n\n", 1)[1].split())
        rows.append((RECIPES[name].question, f"`kvbench answer {name}`", about))
    readme.table(("question", "command", "what it says"), rows)
