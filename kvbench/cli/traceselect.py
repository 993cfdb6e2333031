"""``kvbench trace select``: a part of a trace, or several in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.progress import row_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.trace.reader import Trace
    from kvbench.trace.sampling import UnitChoice
    from kvbench.trace.select import Selection, SelectReport

SAMPLING = ("sample_by", "sample_depth", "seed")


@click.command(
    epilog="""\b
Examples:
  kvbench trace select chat.arrow --from 10min --until 20min --start 0s -o ten.arrow
  kvbench trace select chat.arrow --sample 0.5 --seed 1 -o half.arrow
  kvbench trace select mine.arrow --sample 0.1 --sample-by tree --sample-depth 1 -o tenth.arrow
  kvbench trace select chat.arrow rag.arrow --scale-rate 2 -o both.arrow
  kvbench trace select chat.arrow rag.arrow --name-tenants -o tenants.arrow
  kvbench trace select chat.arrow --repeat 10 -o long.arrow"""
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option("-o", "--output", metavar="FILE", required=True, help="What to write, .arrow or .parquet.")
@click.option("--rows", metavar="FIRST:LAST", help="These rows of each TRACE, counted from 1: 1:1000, 5000: or :1000.")
@click.option("--from", "from_", metavar="TIME", help="Rows that arrive from here on: 10min, 1.5s.")
@click.option("--until", metavar="TIME", help="Rows that arrive before.")
@click.option("--session", "sessions", multiple=True, metavar="NAME", help="Rows of this session; may be repeated.")
@click.option("--tenant", "tenants", multiple=True, metavar="NAME", help="Rows of this tenant; may be repeated.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Rows of this model; may be repeated.")
@click.option("--drop-silent", is_flag=True, help="Leave out rows with 0 output tokens, and count them.")
@click.option("--sample", type=float, metavar="SHARE", help="This share of the sessions or prefix trees, each whole.")
@click.option(
    "--sample-by",
    type=click.Choice(["session", "tree"]),
    help="Kept whole; a tree is all prompts with the same first block.  [default: session, where TRACE has any]",
)
@click.option(
    "--sample-depth",
    type=int,
    metavar="N",
    help="Name trees by N more blocks, where few first blocks start most prompts.  [default: 0]",
)
@click.option("--seed", type=int, metavar="N", help="Of the sample.  [default: 0]")
@click.option(
    "--shared-ids", is_flag=True, help="Equal ids and names in different TRACEs mean the same, as in shards of one."
)
@click.option(
    "--name-tenants",
    is_flag=True,
    help="Rows without a tenant are of one that is called as their TRACE's file: chat of chat.arrow.",
)
@click.option("--scale-rate", metavar="FACTOR", help="So many times as many requests a second; think times go along.")
@click.option("--repeat", type=int, default=1, metavar="N", help="The whole N times in a row, each with fresh ids.")
@click.option("--start", metavar="TIME", help="The first row arrives then: 0s.  [default: when it did]")
@click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block, instead of what the file says.")
@click.option(
    "--tail-rule", type=click.Choice(["ceil", "floor"]), help="Whether a partial last block has an id (ceil) or none."
)
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="A bad row ends the run, or is left out and counted.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def select(traces: tuple[str, ...], output: str, force: bool, **settings: Any) -> None:
    """Write a part of TRACE, or several TRACEs in one, as a trace.

    The order of operations is fixed. Of each TRACE: rows by number, then by time, then by session,
    tenant and model, without silent ones if asked, then the sample. Then traces are merged by
    arrival, the rate is scaled, the whole is repeated, and the first arrival is moved. Ids and
    names of different TRACEs are told apart unless --shared-ids is given; block ids are numbered
    anew, which changes no hit.
    """
    from kvbench.trace.reader import open_trace
    from kvbench.trace.select import select_traces

    reading = {name: settings.pop(name) for name in ("block_tokens", "tail_rule", "on_error")}
    opened = [open_trace(source, **reading) for source in traces]
    selection = _selection(opened, settings)
    with row_progress("select") as progress:
        report = select_traces(opened, output, selection, force=force, progress=progress)
    for line in _lines(report, selection):
        click.echo(line)
    click.echo(f"wrote {output}")


def _selection(opened: Sequence[Trace], settings: dict[str, Any]) -> Selection:
    """The settings of the command line as a selection. Raises ConfigError for one that makes no sense."""
    from fractions import Fraction

    from kvbench.errors import ConfigError
    from kvbench.trace.select import RowRange, Selection
    from kvbench.units import parse_duration, split_quantity

    given: dict[str, Any] = {"sample": _sample(opened, settings)}
    if settings["rows"] is not None:
        given["rows"] = RowRange.parse(settings["rows"])
    for name, option in (("from_ns", "from_"), ("until_ns", "until"), ("start_ns", "start")):
        if settings[option] is not None:
            given[name] = parse_duration(settings[option])
    if settings["scale_rate"] is not None:
        factor, unit = split_quantity(settings["scale_rate"])
        if unit not in ("", "%"):
            raise ConfigError(f"--scale-rate {settings['scale_rate']}: write a number, for example 2 or 0.5")
        given["scale_rate"] = factor / 100 if unit else Fraction(factor)
    for name in ("sessions", "tenants", "models", "drop_silent", "repeat", "shared_ids", "name_tenants"):
        given[name] = settings[name]
    return Selection(**given)


def _sample(opened: Sequence[Trace], settings: dict[str, Any]) -> UnitChoice | None:
    from kvbench.errors import ConfigError
    from kvbench.trace.sampling import UnitChoice

    if settings["sample"] is None:
        for name in SAMPLING:
            if settings[name] is not None:
                raise ConfigError(f"--{name.replace('_', '-')} has no effect without --sample")
        return None
    by = settings["sample_by"]
    if by is None:
        by = "session" if all("session_id" in trace.schema.names for trace in opened) else "tree"
    return UnitChoice(settings["sample"], by, settings["sample_depth"] or 0, settings["seed"] or 0)


def _lines(report: SelectReport, selection: Selection) -> list[str]:
    from kvbench.results.headline import percent

    blocks = f", {report.distinct_blocks:,} distinct blocks" if report.distinct_blocks is not None else ""
    lines = [f"read {report.read_rows:,} rows, kept {report.kept_rows:,}, wrote {report.rows:,}{blocks}"]
    if report.rejected:
        lines.append(f"left out: {report.rejected:,} bad rows")
    if selection.drop_silent:
        lines.append(f"left out: {report.silent:,} rows without output tokens")
    if selection.sample is not None:
        lines.append(
            f"sample: {report.kept_units:,} of {report.units:,} {selection.sample.by}s, with "
            f"{percent(report.sampled_rows_share)} of the rows and {percent(report.sampled_ids_share)} of the ids"
        )
        lines.append(
            f"capacity factor {report.capacity_factor:g}: a cache of N blocks for the whole trace corresponds to one "
            f"of {report.capacity_factor:g} · N blocks for this one"
        )
    return lines
