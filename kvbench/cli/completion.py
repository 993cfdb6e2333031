"""``kvbench completion``: what a shell reads to complete commands."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  source <(kvbench completion bash)
  kvbench completion zsh > ~/.zfunc/_kvbench
  kvbench completion fish > ~/.config/fish/completions/kvbench.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print the script with which SHELL completes commands, options, and what options take.

    Names of parts are completed and then their parameters (--policy s3-fifo,small=), keys of tiers and
    of other tables, presets, models, formats, figures and files.
    """
    from kvbench.cli.completing import script

    click.echo(script(ctx.find_root().command, shell), nl=False)
