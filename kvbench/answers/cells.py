"""How the tables of answers are shown: columns by the units in their names, at the command line and in notebooks."""

from __future__ import annotations

from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.answers.recipes import RECIPES
from kvbench.results.headline import NOTHING, percent
from kvbench.results.notebook import table_html
from kvbench.units import format_bytes, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.answers.answer import Answer

REMARKS = ("definition", "meaning", "note")
"""Columns of sentences: they stand last and may wrap."""


def told_columns(table: pa.Table) -> list[str]:
    """The columns of which anything is known, without :data:`REMARKS`."""
    return [
        name for name in table.column_names if name not in REMARKS and table.column(name).null_count < table.num_rows
    ]


def header_of(name: str) -> str:
    """What a column is called."""
    return name.removesuffix("_ns").replace("_", " ").replace(" gib", " GiB")


def is_text(table: pa.Table, name: str) -> bool:
    """Whether a column holds words."""
    return bool(pa.types.is_string(table.schema.field(name).type))


def texts_of(table: pa.Table, name: str) -> list[str]:
    """The values of a column as they are shown."""
    write = _writer(name, table.schema.field(name).type)
    return [NOTHING if value is None else write(value) for value in table.column(name).to_pylist()]


def answer_html(answer: Answer) -> str:
    """The recommendation and the tables for a notebook."""
    trace = answer.manifest["trace"]
    shown = [escape(f"{RECIPES[answer.question].question} · {trace['source_name'] or trace['digest'][:19]}")]
    shown += [escape(line) for line in answer.advice]
    text = "".join(f"<p>{line}</p>" for line in shown)
    for name, table in answer.tables.items():
        if table.num_rows:
            names = told_columns(table)
            rows = list(zip(*(texts_of(table, each) for each in names), strict=True))
            text += table_html(name.replace("-", " "), [header_of(each) for each in names], rows)
    return f"<div>{text}</div>"


def _writer(name: str, kind: pa.DataType) -> Callable[[Any], str]:
    """How the values of a column are written, by the unit in its name."""
    if pa.types.is_string(kind):
        return str
    if pa.types.is_boolean(kind):
        return lambda value: "yes" if value else "no"
    if name.partition("_per_")[0].endswith("_bytes"):
        return lambda count: format_bytes(round(count))
    if name.endswith("_ns"):
        return format_duration_ns
    if pa.types.is_floating(kind):
        return _share(name.split("_")) or (lambda value: plain(value, 4))
    return "{:,}".format


def plain(value: float, digits: int) -> str:
    """A number with so many significant digits, written out: neither 2.181e+04 nor 8.27e-05."""
    return f"{Decimal(f'{value:.{digits}g}'):,f}"


def _share(words: list[str]) -> Callable[[float], str] | None:
    """How a share is written, if it is one: with so many digits as there are where it is one of something small."""
    if "rate" not in words and "share" not in words:
        return None
    return (lambda share: f"{plain(100 * share, 3)} %") if "per" in words else percent
