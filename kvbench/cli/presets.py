"""``kvbench presets``: named systems as settings."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  kvbench presets
  kvbench presets lmcache
  kvbench replay trace.arrow --preset lmcache --tier cpu,capacity=64GiB --model llama-3.1-8b"""
)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def presets(name: str | None, as_json: bool) -> None:
    """List the presets of kvbench replay, or the settings of preset NAME and where each comes from."""
    from kvbench.presets import load_preset, preset_names

    chosen = [load_preset(each) for each in ([name] if name else preset_names())]
    if as_json:
        from kvbench.cli.jsonout import print_json

        print_json(chosen)
        return
    from kvbench.cli.tables import Printer, add_remarks, simple_table

    out = Printer()
    table = simple_table("preset", "system", "version")
    add_remarks(table)
    for preset in chosen:
        table.add_row(preset.name, preset.system, preset.version, preset.help)
    out.print(table)
    if name:
        import tomli_w
        from rich.markup import escape

        out.print()
        out.print(escape(tomli_w.dumps(chosen[0].settings).rstrip()))
        out.print()
        sources = simple_table("setting")
        add_remarks(sources, "where it comes from")
        for setting, source in chosen[0].sources.items():
            sources.add_row(setting, source)
        out.print(sources)
