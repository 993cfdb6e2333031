"""Writes the generated parts of README.md: sessions, tables and the CLI reference.

cog -r -P -I tests README.md        write them anew
cog --check -P -I tests README.md   fail if one is out of date (the tests do this)
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from kvbench.cli.root import root
from kvbench.config import RunConfig
from kvbench.plugins import HOOKS, load_registry
from kvbench.results.events import EVENTS_SCHEMA
from kvbench.results.rates import RATES
from kvbench.results.requests import CARRIED, COMPUTED, MISS_REASONS
from kvbench.specs import EvictionPolicySpec, RouterPolicySpec, TokenDatabaseSpec, TraceFormatSpec, WorkloadSpec
from kvbench.trace.schema import COLUMNS, TraceFacts

ROOT = Path(__file__).parent.parent
WALL_CLOCK = re.compile(r"^wall clock: .*$", re.MULTILINE)
PART_KINDS = (EvictionPolicySpec, RouterPolicySpec, TokenDatabaseSpec, TraceFormatSpec, WorkloadSpec)


def run(command: str, cwd: Path = ROOT) -> str:
    """What a ``kvbench …`` command prints, with the wall clock left out."""
    words = shlex.split(command)
    assert words[0] == "kvbench", command
    env = {**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-m", "kvbench", *words[1:]], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    return WALL_CLOCK.sub("wall clock: …", done.stdout + done.stderr).rstrip()


def session(*commands: str) -> None:
    """Print commands and what they print as a terminal session."""
    print("```console")
    for command in commands:
        print(f"$ {command}")
        print(run(command))
    print("```")


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a Markdown table."""
    headers = list(headers)
    print("| " + " | ".join(headers) + " |")
    print("|" + "---|" * len(headers))
    for row in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")


def rates() -> None:
    table(("rate", "definition"), ((f"`{name}`", text) for name, text in RATES.items()))


def misses() -> None:
    table(
        ("reason", "the block was missing because"),
        ((f"`{name.removeprefix('miss_').removesuffix('_blocks')}`", text) for name, text in MISS_REASONS.items()),
    )


def trace_columns() -> None:
    table(
        ("column", "type", "meaning"),
        (
            (f"`{c.name}`" + (" (required)" if c.required else ""), str(c.type).replace("<item: ", "<"), c.help)
            for c in COLUMNS
        ),
    )


def trace_facts() -> None:
    defaults = TraceFacts()
    table(
        ("fact", "default"),
        ((f"`{f.name}`", f"`{getattr(defaults, f.name)!r}`") for f in dataclasses.fields(TraceFacts)),
    )


def request_columns() -> None:
    rows = [("`request`", "number of the request, from 0"), (", ".join(f"`{c}`" for c in CARRIED), "from the trace")]
    table(("column", "meaning"), [*rows, *((f"`{c.name}`", c.help) for c in COMPUTED)])


def event_columns() -> None:
    print(", ".join(f"`{field.name}`" for field in EVENTS_SCHEMA))


def parts() -> None:
    registry = load_registry(autoload=False)
    rows = []
    for kind in PART_KINDS:
        for spec in registry.specs(kind):
            params = ", ".join(f"`{p.name}={p.default}`" for p in spec.params) or "–"
            rows.append((kind.kind, f"`{spec.name}`", spec.help, params, spec.source))
    table(("kind", "name", "what it does", "parameters", "source"), rows)


def example_policy() -> None:
    """Print the example plugin's class and hook, without its module docstring."""
    source = (ROOT / "plugins/kvbench-example-policy/kvbench_example_policy.py").read_text()
    code = source.split('"""', 2)[2].strip()
    print(f"```python\n{code}\n```")


def hooks() -> None:
    table(("hook", "yields"), ((f"`{hook}`", f"`kvbench.{kind.__name__}`") for hook, kind in HOOKS.items()))


def config_keys() -> None:
    print(", ".join(f"`{name}`" for name in RunConfig.__struct_fields__))


def cli() -> None:
    """Print the help of every command."""
    settings = {"help_option_names": ["-h", "--help"]}
    ctx = click.Context(root, info_name="kvbench", obj=load_registry(autoload=False), **settings)
    _help(root, ctx)


def _help(command: click.Command, ctx: click.Context) -> None:
    ctx.terminal_width = 100
    print(f"### `{ctx.command_path}`\n\n```text\n{command.get_help(ctx).rstrip()}\n```\n")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None, name
            _help(child, click.Context(child, info_name=name, parent=ctx, help_option_names=["-h", "--help"]))
