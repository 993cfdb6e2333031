"""What ``kvbench answer`` prints: any answer, by the units in the names of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from kvbench.cli.tables import Printer, add_remarks, simple_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from kvbench.answers.answer import Answer

MAX_ROWS = 24


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
    from kvbench.answers.cells import REMARKS, header_of, is_text, texts_of, told_columns

    names = told_columns(table)
    remarks = [name for name in table.column_names if name in REMARKS]
    shown = simple_table(*(header_of(name) for name in names), title=title)
    for name in remarks:
        add_remarks(shown, name)
    for at, name in enumerate(names):
        if is_text(table, name):
            shown.columns[at].justify = "left"
    first = table.slice(0, MAX_ROWS)
    for texts in zip(*(texts_of(first, name) for name in (*names, *remarks)), strict=True):
        shown.add_row(*map(escape, texts))
    return shown
