"""``kvbench answer``: the ten questions, a subcommand each; what all of them share is here."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvbench.answers.recipes import RECIPES
from kvbench.cli.options import all_of, block_options, on_error_option
from kvbench.cli.parts import PartType, make_part
from kvbench.cli.root import has_autoload, registry_of
from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.specs import ExecutorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

COMMANDS = {
    **dict.fromkeys(("reuse", "dram"), "kvbench.cli.answercache"),
    **dict.fromkeys(("nvme", "sharing", "eviction", "router"), "kvbench.cli.answersystems"),
    "block-size": "kvbench.cli.answercache",
    "replicas": "kvbench.cli.answersystems",
    **dict.fromkeys(("layout", "isolation"), "kvbench.cli.answercache"),
}
"""The module of each question's command, which is called as the question with underscores for dashes."""


class AnswerGroup(click.Group):
    """Lists the questions in their order, and imports a command when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(RECIPES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise ConfigError(f"unknown question {args[0]!r}; {did_you_mean(args[0], list(RECIPES))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Questions"):
            formatter.write_dl([(name, recipe.question) for name, recipe in RECIPES.items()])


@click.group(
    cls=AnswerGroup,
    epilog="""\b
Examples:
  kvbench answer dram trace.arrow --model Llama-3.1-70B --tp 8 --workers 8
  kvbench answer reuse trace.arrow -o reuse --png""",
)
def answer() -> None:
    """Answer a question about TRACE: a recommendation, the numbers it rests on, charts and files."""


def answer_options(uses_of_bytes: str | None) -> Callable[[F], F]:
    """What every question takes, after its own options; ``uses_of_bytes`` as of ``block_options``."""
    options = (
        block_options(uses_of_bytes),
        on_error_option,
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            metavar="FOLDER",
            help="Write tables (.parquet, .csv), charts (.html; needs the extra 'report') and answer.json into it.",
        ),
        click.option("--png", is_flag=True, help="Write the charts as .png, too."),
        click.option("--svg", is_flag=True, help="Write the charts as .svg, too."),
        click.option("--force", is_flag=True, help="Replace the answer in FOLDER."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables."),
        click.pass_context,
    )
    return all_of(options)


executor_option = click.option(
    "--executor", type=PartType(ExecutorSpec), help="Where replays run, as local or local,processes=4.  [default: here]"
)


def give_answer(ctx: click.Context, question: str, settings: dict[str, Any]) -> None:
    """Answer ``question``, and print and write the answer.

    ``settings``  all options; those that were not given are None.
    """
    from kvbench.answers.answer import Asked, check_folder, write_answer
    from kvbench.answers.ask import configured
    from kvbench.cli.answertables import print_answer
    from kvbench.cli.jsonout import print_json
    from kvbench.cli.progress import CELLS, ROWS, row_progress

    folder, force, as_json = (settings.pop(name) for name in ("output", "force", "as_json"))
    shown = CELLS if "executor" in settings else ROWS
    executor = settings.pop("executor", None)
    images = _images(settings, folder)
    if folder is not None:
        check_folder(folder, force=force)
    elif force:
        raise _no_effect("--force")
    given = {name: value for name, value in settings.items() if value not in (None, ())}
    config, options = configured(question, given)
    recipe = RECIPES[question].load()
    registry = registry_of(ctx)
    place = None if executor is None else make_part(registry, ExecutorSpec, executor, "--executor")[1]
    with row_progress(question, shown) as progress:
        asked = Asked(
            config=config,
            registry=registry,
            row_progress=progress if shown is ROWS else None,
            cell_progress=progress if shown is CELLS else None,
            executor=place,
            clock=time.perf_counter,
            folder=folder,
            force=force,
            autoload=has_autoload(),
        )
        found = recipe(asked, **options)
    written = list(asked.files)
    if folder is not None:
        written += write_answer(found, folder, force=force, images=images)
        _tell_of_missing_charts()
    if as_json:
        print_json(found.to_dict() | ({"wall_clock": found.wall_clock} if found.wall_clock else {}))
    else:
        print_answer(found, config.trace or "", RECIPES[question].question, written)


def _images(settings: dict[str, Any], folder: Path | None) -> tuple[str, ...]:
    """Kinds of pictures to write beside HTML; takes their settings out."""
    wanted = tuple(f".{name}" for name in ("png", "svg") if settings.pop(name))
    if wanted and folder is None:
        raise _no_effect(f"--{wanted[0][1:]}")
    if wanted:
        from kvbench.report.charts import check_drawable

        check_drawable(f"--{wanted[0][1:]}")
    return wanted


def _tell_of_missing_charts() -> None:
    from kvbench.report.charts import missing_libraries

    missing = missing_libraries()
    if missing:
        click.echo(f"note: no charts without {' and '.join(missing)}: pip install 'kvbench[report]'", err=True)


def _no_effect(option: str) -> Exception:
    from kvbench.errors import ConfigError

    return ConfigError(f"{option} has no effect without --output FOLDER")
