"""What ``kvbench answer`` prints: any answer, by the units in the names of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from kvbench.cli.tables import Printer, add_remarks, simple_table
from kvbench.results.headline import percent
from kvbench.units import format_bytes, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from kvbench.answers.answer import Answer

MAX_ROWS = 24
REMARKS = ("definition", "meaning", "note")
"""Columns of sentences: they stand last and may wrap."""


def print_answer(answer: Answer, trace: str, question: str, written: Sequence[Path]) -> None:
    """Print the recommendation, then the tables."""
    out = Printer()
    out.print(f"[bold]{escape(question)}[/bold] · {escape(trace)}")
    out.print()
    for line in answer.advice:
        out.print(escape(line))
    for name, table in answer.tables.items():
        if table.num_rows:
            out.print()
            out.print(_table(name.replace("-", " "), table))
            if table.num_rows > MAX_ROWS:
                out.print(f"… {table.num_rows - MAX_ROWS:,} more rows: see --json or --output")
    for name, figures in answer.wall_clock.items():
        out.print()
        told = ", ".join(f"{key} {figure:,.0f}" for key, figure in figures.items())
        out.print(f"wall clock: {name.replace('_', ' ')}: {told}", style="dim")
    if written:
        out.print()
    for path in written:
        out.print(escape(f"wrote {path}"))


def _table(title: str, table: pa.Table) -> Any:
    names = [name for name in table.column_names if name not in REMARKS and _is_told(table, name)]
    remarks = [name for name in table.column_names if name in REMARKS]
    shown = simple_table(*(_header(name) for name in names), title=title)
    for name in remarks:
        add_remarks(shown, name)
    formats = [_format(name, table.schema.field(name).type) for name in (*names, *remarks)]
    for at, name in enumerate(names):
        if _is_text(table.schema.field(name).type):
            shown.columns[at].justify = "left"
    for row in table.slice(0, MAX_ROWS).to_pylist():
        cells = [row[name] for name in (*names, *remarks)]
        shown.add_row(*("–" if cell is None else escape(text(cell)) for cell, text in zip(cells, formats, strict=True)))
    return shown


def _is_told(table: pa.Table, name: str) -> bool:
    """Whether anything is known of a column."""
    return bool(table.column(name).null_count < table.num_rows)


def _header(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ")


def _format(name: str, kind: pa.DataType) -> Callable[[Any], str]:
    """How the values of a column are written, by the unit in its name."""
    import pyarrow as pa

    if _is_text(kind):
        return str
    if pa.types.is_boolean(kind):
        return lambda value: "yes" if value else "no"
    if name.partition("_per_")[0].endswith("_bytes"):
        return lambda count: format_bytes(round(count))
    if name.endswith("_ns"):
        return format_duration_ns
    if pa.types.is_floating(kind):
        return _share(name.split("_")) or "{:,.4g}".format
    return "{:,}".format


def _share(words: list[str]) -> Callable[[float], str] | None:
    """How a share is written, if it is one: with so many digits as there are where it is one of something small."""
    if "rate" not in words and "share" not in words:
        return None
    return (lambda share: f"{100 * share:.3g} %") if "per" in words else percent


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind))
