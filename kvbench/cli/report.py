"""``kvbench report`` and ``kvbench plot``: pages and pictures of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvbench.errors import ConfigError

if TYPE_CHECKING:
    from kvbench.report.assemble import Report
    from kvbench.report.charts import Sheet
    from kvbench.report.figure import Figure

FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.command(
    epilog="""\b
Examples:
  kvbench report run.parquet -o report.html
  kvbench report run.json run.parquet timeline.parquet -o report.html
  kvbench report curve.parquet sweep.parquet -o capacity.html
  kvbench report lru.parquet arc.parquet --title "Which policy?" -o policies.html"""
)
@FILES
@click.option("-o", "--output", required=True, metavar="FILE", help="The page to write, in .html.")
@click.option("--title", metavar="TEXT", help="Of the page.  [default: the name of the trace]")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def report(files: tuple[Path, ...], output: str, title: str | None, force: bool) -> None:
    """Make one page of FILES: what was run, what it found, and charts of it with their data.

    FILES are what kvbench wrote, told by what is in them: requests files (kvbench replay -o),
    timelines (--timeline), documents (--json), curves (kvbench curve -o) and sweeps (kvbench sweep
    -o). The files of one run are brought together; several runs stand side by side.

    The page holds all it needs: it opens without a network, on a phone and on paper, in light and
    dark. The data behind each chart can be read there as a table and saved as CSV.
    """
    from kvbench.report.page import write_page

    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{output}: a report is a page; give it a name in .html")
    made = _assembled(files, output, "report", force=force)
    write_page(output, title or made.title, made.sections, manifest=made.manifest, force=force, lead=made.lead)
    click.echo(f"wrote {output}: {len(made.figures):,} charts")


@click.command(
    epilog="""\b
Examples:
  kvbench plot run.parquet
  kvbench plot run.parquet --figure misses -o misses.svg
  kvbench plot curve.parquet --figure hit-rate -o curve.png --data curve.csv
  kvbench plot sweep.parquet --figure matrix -o matrix.html"""
)
@FILES
@click.option("--figure", metavar="NAME", help="Which one to draw.  [default: list them]")
@click.option("-o", "--output", metavar="FILE", help="The picture to write: .png, .svg or .html.")
@click.option("--data", metavar="FILE", help="Write the rows that are drawn, too: .csv or .parquet.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
def plot(files: tuple[Path, ...], figure: str | None, output: str | None, data: str | None, force: bool) -> None:
    """Draw one figure of FILES, or list those that they have.

    FILES are as of kvbench report, and so are the figures. Each is rows of numbers, which --data
    writes with the units in the names of the columns.
    """
    from kvbench.report.charts import Sheet, plotter
    from kvbench.results.tidy import write_table

    if figure is None:
        for option, value in (("--output", output), ("--data", data), ("--force", force or None)):
            if value is not None:
                raise ConfigError(f"{option} has no effect without --figure")
        _list(_assembled(files, None, "plot", force=False).figures)
        return
    if output is None and data is None:
        raise ConfigError("--figure needs -o for the picture, or --data for its rows")
    draw = plotter(output, _same, force=force, option="-o") if output is not None else None
    made = _assembled(files, data, "plot", force=force)
    found = next((each for each in made.figures if each.name == figure), None)
    if found is None:
        names = ", ".join(each.name for each in made.figures)
        raise ConfigError(f"--figure {figure}: there is no such figure; there are {names}")
    if draw is not None:
        draw(Sheet(made.title, [found], made.manifest))
        click.echo(f"wrote {output}")
    if data is not None:
        write_table(found.table(), data, made.manifest, force=force)
        click.echo(f"wrote {data}: {len(found.rows):,} rows")


def _same(sheet: Sheet) -> Sheet:
    return sheet


def _assembled(files: tuple[Path, ...], output: str | None, command: str, *, force: bool) -> Report:
    """The report on the files; that it can be written is checked before."""
    from kvbench.atomic import check_writable
    from kvbench.report.assemble import assemble
    from kvbench.report.charts import check_drawable
    from kvbench.report.sources import read_material

    check_drawable(f"kvbench {command}")
    if output is not None:
        check_writable(output, force)
    return assemble(read_material(files))


def _list(figures: list[Figure]) -> None:
    from kvbench.cli.tables import Printer, simple_table

    table = simple_table("figure", "rows")
    table.add_column("what it shows", header_style="bold")
    for figure in figures:
        table.add_row(figure.name, f"{len(figure.rows):,}", figure.title)
    Printer().print(table)
