"""What ``kvbench compare`` prints of several runs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from kvbench.cli.tables import Printer, simple_table
from kvbench.results.headline import SHOWN, change, duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.table import Table

    from kvbench.results.compare import Compared, Comparison
    from kvbench.results.rowdiff import RowDifferences
    from kvbench.results.thresholds import Broken
    from kvbench.sweeps.compare import SweepComparison

WHERE = (
    (re.compile(r"^workers\.each\.(\d+)\.(requests|hit_tokens)$"), "worker {}: {}"),
    (re.compile(r"^tiers\.(.+)\.(hit_blocks)$"), "tier {}: {}"),
    (re.compile(r"^(misses)\.(\w+)$"), "{}: {}"),
    (re.compile(r"^timed\.workers\.each\.(\d+)\.(busy_ns)$"), "worker {}: {}"),
    (re.compile(r"^links\.(.+)\.(busy_ns)$"), "link {}: {}"),
)
"""Figures that say where a difference comes from: pattern of the path, and what to call it."""

OF_CELLS = ("rates.token", "timed.ttft_ns.p99")
"""Figures that are shown of each cell of a sweep."""

MAX_CELLS = 40
MAX_MOVED = 8
MAX_OF_A_KIND = 4
MAX_SETTINGS = 20
MAX_TEXT = 40
MAX_COLUMNS = 6


def print_comparison(comparison: Comparison, broken: Sequence[Broken], files: Sequence[Path]) -> None:
    """Print settings and figures that differ, where, and the verdict."""
    out = Printer()
    names = _short_names([run.name for run in comparison.runs])
    trace = comparison.runs[0].manifest["trace"]
    title = f"{names[0]} is the reference · trace {trace.get('source_name') or comparison.runs[0].digest}"
    out.print(escape(title), style="bold")
    out.print()
    tables = [_settings(comparison, names), _figures(comparison, names), _where(comparison, names)]
    for table in tables:
        if table is not None:
            out.print(table)
            out.print()
    for at, name in enumerate(names[1:], 1):
        out.print(escape(f"{name}: {_verdict(comparison, at)}"))
    for each in broken:
        moved = _moved(each.delta, each.share, each.figure)
        out.print(escape(f"failed: {_short_names([each.run])[0]} breaks {each.limit}: {moved}"), style="bold red")
    for file in files:
        out.print(escape(f"wrote {file}"))


def print_sweeps(comparison: SweepComparison, broken: Sequence[tuple[str, Broken]], files: Sequence[Path]) -> None:
    """Print the same of sweeps: the figures of each cell, and where they moved most."""
    out = Printer()
    names = _short_names(comparison.names)
    out.print(escape(f"{names[0]} is the reference · {len(comparison.cells):,} cells in all of them"), style="bold")
    out.print()
    every = [(name, path) for name, cell in comparison.cells.items() for path in OF_CELLS if path in cell.figures]
    moved = sorted(
        ((name, path) for name, cell in comparison.cells.items() for path in SHOWN if path in cell.figures),
        key=lambda each: -_largest_share(comparison.cells[each[0]].figures[each[1]]),
    )
    where = [each for each in moved if _largest_share(comparison.cells[each[0]].figures[each[1]])][:MAX_MOVED]
    tables = [_settings(comparison.whole, names), _of_cells(comparison, names, "cell", every[:MAX_CELLS])]
    for table in [*tables, _of_cells(comparison, names, "where most", where) if where else None]:
        if table is not None:
            out.print(table)
            out.print()
    if len(every) > MAX_CELLS:
        out.print(f"… {len(every) - MAX_CELLS:,} more rows: see --output or --json")
    for at, name in enumerate(names[1:], 1):
        differing, left_over = len(comparison.differing(at)), [len(comparison.left_over[each]) for each in (0, at)]
        alone = f"; {sum(left_over):,} cells are in one alone" if any(left_over) else ""
        verdict = f"{differing:,} of {len(comparison.cells):,} cells differ" if differing else "equal in all cells"
        out.print(escape(f"{name}: {verdict}{alone}"))
    for cell, each in broken:
        how_far = _moved(each.delta, each.share, each.figure)
        out.print(escape(f"failed: {cell} of {_short_names([each.run])[0]} breaks {each.limit}: {how_far}"), "bold red")
    for file in files:
        out.print(escape(f"wrote {file}"))


def _largest_share(compared: Compared) -> float:
    """How far a figure moved at most; without bound where it was 0."""
    others = range(1, len(compared.values))
    return max((abs(compared.share(at) or (math.inf if compared.delta(at) else 0)) for at in others), default=0)


def _of_cells(comparison: SweepComparison, names: Sequence[str], title: str, rows: Sequence[tuple[str, str]]) -> Table:
    table = simple_table(
        title, "figure", escape(names[0]), *(cell for name in names[1:] for cell in (escape(name), "Δ", "%"))
    )
    table.columns[1].justify = "left"
    for name, path in rows:
        figure, write = SHOWN[path]
        table.add_row(escape(name), figure, *_cells(comparison.cells[name].figures[path], path, write))
    return table


def _short_names(names: Sequence[str]) -> list[str]:
    """Names of files without their folders, where these tell them apart."""
    short = [Path(name).name for name in names]
    return short if len(set(short)) == len(names) else list(names)


def _settings(comparison: Comparison, names: Sequence[str]) -> Table | None:
    if not comparison.settings:
        return None
    table = simple_table("what differs", *map(escape, names))
    for name, values in list(comparison.settings.items())[:MAX_SETTINGS]:
        table.add_row(escape(name), *(_text(value) for value in values))
    if len(comparison.settings) > MAX_SETTINGS:
        table.add_row(f"… {len(comparison.settings) - MAX_SETTINGS} more: see --json")
    for name, texts in comparison.texts.items():
        if name.endswith(("verdict.state", "run.stop")):
            table.add_row(escape(name), *(_text(value) for value in texts))
    return table


def _text(value: object) -> str:
    text = "–" if value is None else str(value)
    return escape(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")


def _figures(comparison: Comparison, names: Sequence[str]) -> Table:
    table = _compared_table("figure", names)
    for path, (title, write) in SHOWN.items():
        if path in comparison.figures:
            table.add_row(title, *_cells(comparison.figures[path], path, write))
    return table


def _where(comparison: Comparison, names: Sequence[str]) -> Table | None:
    """The parts that changed most, so many of a kind."""
    rows = []
    for pattern, form in WHERE:
        found = []
        for path, compared in comparison.figures.items():
            match = pattern.match(path)
            largest = max((abs(compared.delta(at) or 0) for at in range(1, len(names))), default=0)
            if match is not None and largest:
                title = form.format(*(part.removesuffix("_ns").replace("_", " ") for part in match.groups()))
                found.append((largest, title, compared, path))
        found.sort(key=lambda each: -each[0])
        rows += found[:MAX_OF_A_KIND]
    if not rows:
        return None
    table = _compared_table("where", names)
    for _, title, compared, path in rows:
        table.add_row(escape(title), *_cells(compared, path, _writer(path)))
    return table


def _compared_table(title: str, names: Sequence[str]) -> Table:
    return simple_table(title, escape(names[0]), *(cell for name in names[1:] for cell in (escape(name), "Δ", "%")))


def _cells(compared: Compared, path: str, write: Callable[[float | None], str]) -> Iterable[str]:
    yield write(compared.values[0])
    for at in range(1, len(compared.values)):
        delta, share = compared.delta(at), compared.share(at)
        yield write(compared.values[at])
        yield _signed(delta, path, write)
        yield change(share)


def _signed(delta: float | None, path: str, write: Callable[[float | None], str]) -> str:
    """A difference: of rates in points."""
    if delta is None:
        return "–"
    if not delta:
        return "="
    if write is percent:
        return f"{100 * delta:+.2f} points"
    return ("+" if delta > 0 else "-") + write(abs(delta))


def _writer(path: str) -> Callable[[float | None], str]:
    if path in SHOWN:
        return SHOWN[path][1]
    if re.search(r"_ns(\.|$)", path):
        return duration
    return lambda value: "–" if value is None else f"{value:,.10g}"


def _moved(delta: float, share: float | None, figure: str) -> str:
    relative = "" if share is None else f" ({100 * share:+.2f} %)"
    return f"{figure} {_signed(delta, figure, _writer(figure))}{relative}"


def _verdict(comparison: Comparison, at: int) -> str:
    rows = comparison.rows[at - 1]
    differing, lacking = len(comparison.differing(at)), len(comparison.lacking(at))
    both = len([each for each in comparison.figures.values() if None not in (each.values[0], each.values[at])])
    if comparison.is_equal(at):
        requests = f" and all {rows.requests:,} requests" if rows is not None else ""
        return f"equal in all {both:,} figures{requests}"
    parts = [f"{differing:,} of {both:,} figures differ (all are in --json)"]
    if lacking:
        parts.append(f"{lacking:,} are in one of the two alone")
    if rows is not None:
        parts.append(_requests(rows))
    return "; ".join(parts)


def _requests(rows: RowDifferences) -> str:
    if rows.first is None:
        return f"all {rows.requests:,} requests are equal" + (f", {rows.left_over:,} more" if rows.left_over else "")
    values = [f"{name} {_text(mine)} → {_text(theirs)}" for name, (mine, theirs) in rows.values.items()]
    shown = ", ".join(values[:MAX_COLUMNS]) + (", …" if len(values) > MAX_COLUMNS else "")
    return f"{rows.differing:,} of {rows.requests:,} requests do, the first is number {rows.first}: {shown}"
