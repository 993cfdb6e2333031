"""``kvbench plugins``: what parts there are, what they take, and who brought them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.root import registry_of
from kvbench.specs import SPEC_KINDS, ComputeModelSpec, HashAlgorithmSpec, Param, RouterPolicySpec, Spec

if TYPE_CHECKING:
    from kvbench.plugins import Registry


@click.command(epilog="Example: kvbench plugins --json")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> None:
    """List all parts by kind: name, parameters with their defaults, source, and who brought them."""
    registry = registry_of(ctx)
    if as_json:
        click.echo(json.dumps(listing(registry), indent=2))
        return
    for kind in SPEC_KINDS:
        click.echo(f"{kind.kind}:")
        for spec in registry.specs(kind):
            click.echo(f"  {spec.name:<14} {spec.help}")
            for param in spec.params:
                click.echo(f"  {'':<14}   {describe(param)}")
            for note in notes(spec):
                click.echo(f"  {'':<14}   {note}")
            origin = f"[{registry.distribution(spec)}]"
            click.echo(f"  {'':<14} {origin}{' ' + spec.source if spec.source else ''}")
    for broken in registry.broken:
        click.echo(f"broken: {broken}")


def describe(param: Param) -> str:
    """One line on a parameter: ``name=default (type): help``."""
    kind = "|".join(param.choices) if param.choices else param.type.__name__
    default = "" if param.default is None else f"={param.default}"
    return f"{param.name}{default} ({kind}): {param.help}"


def notes(spec: Spec) -> list[str]:
    """What there is to know of a part beside its parameters."""
    if isinstance(spec, RouterPolicySpec):
        return [f"--index {spec.index}"] if spec.index else []
    if isinstance(spec, ComputeModelSpec):
        return [f"caution: {spec.caution}"] if spec.caution else []
    if not isinstance(spec, HashAlgorithmSpec):
        return []
    needs = [f"needs {', '.join(spec.needs)}"] if spec.needs else []
    return needs + ([f"caution: {spec.caution}"] if spec.caution else [])


def facts_of(spec: Spec) -> dict[str, Any]:
    """What specs of this kind say beyond what all do."""
    if isinstance(spec, RouterPolicySpec):
        return {"columns": list(spec.columns), "uses": list(spec.uses), "index": spec.index}
    if isinstance(spec, ComputeModelSpec):
        return {"linear": list(spec.linear), "curved": list(spec.curved), "caution": spec.caution}
    if not isinstance(spec, HashAlgorithmSpec):
        return {}
    return {"layout": spec.layout, "root": spec.root, "needs": list(spec.needs), "caution": spec.caution}


def listing(registry: Registry) -> dict[str, Any]:
    """Everything ``kvbench plugins`` knows, as plain values."""
    return {
        "parts": [
            {
                "kind": kind.kind,
                "name": spec.name,
                "help": spec.help,
                "source": spec.source,
                "params": [
                    {
                        "name": param.name,
                        "type": param.type.__name__,
                        "default": param.default,
                        "help": param.help,
                        "choices": list(param.choices),
                    }
                    for param in spec.params
                ],
                **facts_of(spec),
                "distribution": registry.distribution(spec).name,
                "version": registry.distribution(spec).version,
            }
            for kind in SPEC_KINDS
            for spec in registry.specs(kind)
        ],
        "broken": [
            {
                "entry_point": broken.entry_point,
                "distribution": broken.distribution.name,
                "version": broken.distribution.version,
                "reason": broken.reason,
            }
            for broken in registry.broken
        ],
    }
