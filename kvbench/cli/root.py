"""The top command, whose subcommands come from the registry and are imported when they run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kvbench.plugins import did_you_mean, load_registry, own_version
from kvbench.specs import CommandSpec

if TYPE_CHECKING:
    from kvbench.plugins import Registry


def registry_of(ctx: click.Context) -> Registry:
    """The registry of this run: discovered once, at the first use, with a warning on standard
    error for each plugin that could not be loaded."""
    found = ctx.find_root()
    if found.obj is None:
        found.obj = load_registry(autoload=has_autoload(), strict=_flag("KVBENCH_STRICT_PLUGINS"))
        for broken in found.obj.broken:
            click.echo(f"warning: {broken}", err=True)
    registry: Registry = found.obj
    return registry


def has_autoload() -> bool:
    """Whether installed plugins count."""
    return not _flag("KVBENCH_DISABLE_PLUGIN_AUTOLOAD")


def _flag(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


class PluginGroup(click.Group):
    """Lists commands from their specs, so that ``--help`` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return registry_of(ctx).names(CommandSpec)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        registry = registry_of(ctx)
        if cmd_name not in registry.names(CommandSpec):
            return None
        command: Any = registry.get(CommandSpec, cmd_name).load()
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            ctx.fail(f"no such command {args[0]!r}; {did_you_mean(args[0], names)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(spec.name, spec.help) for spec in registry_of(ctx).specs(CommandSpec)])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"kvbench {own_version()}")
        ctx.exit()


@click.group(
    cls=PluginGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: kvbench replay traces/chat.arrow --capacity 10%",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def root() -> None:
    """Replay LLM request traces through a model of a KV-cache system: what hits, what is evicted and why."""
