"""The tables that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvbench.results.headline import number, percent
from kvbench.results.rates import RATES
from kvbench.results.requests import MISS_REASONS
from kvbench.units import format_bytes, format_count

if TYPE_CHECKING:
    from kvbench.config import RunConfig
    from kvbench.results.matrix import MatrixResult
    from kvbench.results.result import ReplayResult

MAX_WORKER_ROWS = 16
PIPE_WIDTH = 160
REMARK_STYLE = "dim"
REMARK_WIDTH = 40
"""That a column of remarks has at least."""

PADDING = 3
"""Between columns."""


class Printer:
    """Prints text and tables to standard output: styled on a terminal, plain and unpadded elsewhere."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, soft_wrap=True, width=PIPE_WIDTH)

    def print(self, what: str | Table = "", style: str | None = None) -> None:
        """Print ``what``; rich's padding at the ends of lines is left out. On a narrow terminal it
        is the remarks of a table that wrap, and the words of headers; names and numbers are never cut."""
        usual = self._console.width
        if isinstance(what, Table):
            needed = _fit(what)
            if needed > usual and self._console.is_terminal:
                for column in what.columns:
                    column.header = str(column.header).replace(" ", "\n")
                needed = _fit(what)
            self._console.width = max(usual, needed)  # in less room rich leaves out columns
        with self._console.capture() as captured:
            self._console.print(what, style=style)
        self._console.width = usual
        for line in captured.get().splitlines():
            click.echo(line.rstrip(), color=self._console.is_terminal)


def _fit(table: Table) -> int:
    """Give each column the room that it needs; returns that of all."""
    needed = 0
    for column in table.columns:
        if column.style != REMARK_STYLE:
            column.min_width = max(
                len(line) for cell in (column.header, *column.cells) for line in (str(cell).splitlines() or [""])
            )
        needed += (column.min_width or REMARK_WIDTH) + PADDING
    return needed


def simple_table(*headers: str, title: str | None = None) -> Table:
    """A table without frames; the first column reads from the left, numbers from the right."""
    table = Table(
        box=None, pad_edge=False, padding=(0, PADDING, 0, 0), title=title, title_justify="left", title_style="bold"
    )
    for at, header in enumerate(headers):
        table.add_column(header, justify="left" if at == 0 else "right", header_style="bold", no_wrap=True)
    return table


def add_remarks(table: Table, header: str = "") -> None:
    """Add the column of remarks, which may wrap."""
    table.add_column(header, justify="left", header_style="bold", style=REMARK_STYLE)


def print_replay(result: ReplayResult, config: RunConfig) -> None:
    """Print the summary of a replay."""
    out = Printer()
    summary = result.summary
    out.print(_headline(result, config))
    out.print()
    out.print(_rates(summary))
    out.print()
    if summary["blocks"] is None:
        out.print("The trace has neither block_ids nor token_ids, so nothing can hit: figures of hits are unknown.")
    else:
        out.print(_blocks(summary))
        out.print()
    if summary.get("tiers"):
        from kvbench.cli.tiertables import serving_table, tier_tables

        for table in tier_tables(summary["tiers"]):
            out.print(table)
            out.print()
        if "serving" in summary:
            out.print(serving_table(summary["serving"]))
            out.print()
    if summary["workers"]["count"] > 1:
        out.print(_workers(summary))
        out.print()
    if "routing" in summary:
        from kvbench.cli.routingtables import routing_tables

        for table in routing_tables(summary["routing"], summary["tokens"]["input"]):
            out.print(table)
            out.print()
    if "timed" in summary:
        from kvbench.cli.timedtables import timed_lines, timed_tables

        for table in timed_tables(summary["timed"]):
            out.print(table)
            out.print()
        for line in timed_lines(summary["timed"], config):
            out.print(escape(line))
    for line in _remarks(result, config):
        out.print(escape(line))
    print_clock(out, result.wall_clock)


def print_clock(out: Printer, clock: dict[str, float]) -> None:
    """Print how long a run took."""
    out.print(
        f"wall clock: {clock['total_s']:.2f} s, of which {clock['replay_s']:.2f} s replaying: "
        f"{format_count(clock['requests_per_s'])} requests/s, {format_count(clock['blocks_per_s'])} blocks/s",
        style="dim",
    )


def print_matrix(result: MatrixResult, config: RunConfig) -> None:
    """Print a matrix: a row for each policy and capacity, the best of a capacity marked, between
    its bounds."""
    out = Printer()
    requests = result.cells[0]["requests"]
    out.print(f"[bold]{config.trace}[/bold] · {requests:,} requests · {len(result.cells)} replays of one pass")
    out.print()
    table = simple_table("capacity", "policy", "token", "block", "request_mean", "gap to Belady", "evicted blocks")
    table.columns[1].justify = "left"
    for blocks in dict.fromkeys(cell["capacity_blocks"] for cell in result.cells):
        cells = [cell for cell in result.cells if cell["capacity_blocks"] == blocks]
        capacity = "infinite" if blocks is None else f"{blocks:,}"
        best = result.best(blocks) if len(cells) > 1 else set()
        for cell in cells:
            mark = " *" if (cell["policy"], cell["router"]) in best else ""
            table.add_row(
                capacity,
                cell["policy"] + mark,
                *_matrix_rates(cell["rates"]),
                _gap(cell),
                number(cell["evicted_blocks"]),
            )
        if cells[0]["belady_rates"]["token"] is not None:
            table.add_row(capacity, "Belady (bound)", *_matrix_rates(cells[0]["belady_rates"]))
        table.add_row(capacity, "infinite (bound)", *_matrix_rates(cells[0]["infinite_rates"]))
    out.print(table)
    out.print()
    out.print("* best token rate of its capacity; gap: token rate of the Belady bound less that of the policy")
    if config.output and config.is_matrix:
        out.print(f"wrote {config.output}")
    print_clock(out, result.wall_clock)


def _matrix_rates(rates: dict[str, float | None]) -> list[str]:
    return [percent(rates[name]) for name in ("token", "block", "request_mean")]


def _gap(cell: dict[str, Any]) -> str:
    bound, rate = cell["belady_rates"]["token"], cell["rates"]["token"]
    return "–" if bound is None or rate is None else f"{100 * (bound - rate):.2f} points"


def _headline(result: ReplayResult, config: RunConfig) -> str:
    from kvbench.cli.tiertables import tier_headline

    requests, trace, settings = result.summary["requests"], result.manifest["trace"], result.manifest["config"]
    capacity = result.summary["capacity_blocks"]
    parts = [
        f"[bold]{config.trace}[/bold]",
        f"{requests['done']:,} requests",
        f"{trace['block_tokens']:,}-token blocks" if trace["block_tokens"] else "no block size",
        f"{settings['workers']} worker{'s' if settings['workers'] > 1 else ''}"
        + (f" ({_part(settings['router'])})" if "router" in settings else ""),
        tier_headline(settings)
        if "tiers" in settings
        else "infinite capacity"
        if capacity is None
        else f"{_part(settings['policy'])}, {capacity:,} blocks each"
        if settings["workers"] > 1
        else f"{_part(settings['policy'])}, {capacity:,} blocks",
        f"{settings['order']}, tails {settings['tails']}",
    ]
    return " · ".join(parts)


def _part(part: dict[str, Any]) -> str:
    return ",".join([part["name"], *(f"{key}={value}" for key, value in part.items() if key != "name")])


def _rates(summary: dict[str, Any]) -> Table:
    table = simple_table("rate", "this run", "Belady", "infinite cache")
    add_remarks(table, "definition")
    for name, definition in RATES.items():
        rates = [percent(summary[of][name]) for of in ("rates", "belady_rates", "infinite_rates")]
        table.add_row(name, *rates, definition)
    return table


def _blocks(summary: dict[str, Any]) -> Table:
    blocks, misses = summary["blocks"], summary["misses"]
    block_bytes = summary.get("bytes", {}).get("block")
    headers = ["blocks", "count", *(["bytes"] if block_bytes else [])]
    table = simple_table(*headers)
    add_remarks(table)
    rows: list[tuple[str, int | None, str]] = [
        ("asked", blocks["asked"], "= hit + all misses below"),
        ("hit", blocks["hit"], "leading blocks that were resident"),
    ]
    for column, text in MISS_REASONS.items():
        reason = column.removeprefix("miss_").removesuffix("_blocks")
        if misses[reason] != 0:
            rows.append((f"miss: {reason.replace('_', ' ')}", misses[reason], text))
    rows += [
        ("distinct", blocks["distinct"], "cacheable blocks, each counted once"),
        ("stored", blocks["stored"], ""),
        ("evicted", blocks["evicted"], ""),
        ("duplicate", blocks["duplicate"], "resident behind a gap: computed again, not stored again"),
    ]
    if blocks["truncated"]:
        rows.append(("truncated", blocks["truncated"], "left out: the request is larger than the cache"))
    rows.append(("resident at end", blocks["resident_at_end"], ""))
    for name, count, text in rows:
        sized = [format_bytes(count * block_bytes) if count is not None else "–"] if block_bytes else []
        table.add_row(name, number(count), *sized, text)
    return table


def _workers(summary: dict[str, Any]) -> Table:
    workers = summary["workers"]
    table = simple_table("worker", "requests", "input tokens", "hit tokens", "token rate", "resident blocks")
    for each in workers["each"][:MAX_WORKER_ROWS]:
        rate = each["hit_tokens"] / each["input_tokens"] if each["input_tokens"] else None
        table.add_row(
            str(each["worker"]),
            f"{each['requests']:,}",
            f"{each['input_tokens']:,}",
            f"{each['hit_tokens']:,}",
            percent(rate),
            f"{each['resident_blocks']:,}",
        )
    if workers["count"] > MAX_WORKER_ROWS:
        table.add_row(f"… {workers['count'] - MAX_WORKER_ROWS} more: see --json")
    table.add_row("max/mean", times(workers["max_over_mean_requests"]), times(workers["max_over_mean_input_tokens"]))
    return table


def times(value: float | None) -> str:
    """A factor with two digits."""
    return "–" if value is None else f"{value:.2f}"


def rejections(count: int, examples: list[str]) -> list[str]:
    """Lines on the rows that were left out; none if there are none."""
    if not count:
        return []
    return [f"rejected: {count:,} rows, for example:", *(f"  {example}" for example in examples)]


def _remarks(result: ReplayResult, config: RunConfig) -> list[str]:
    summary = result.summary
    remarks = []
    workers = summary["workers"]
    if (workers["max_over_mean_requests"] or 0) > 2 and summary["requests"]["done"] > 10 * workers["count"]:
        remarks.append(f"note: the busiest worker served {workers['max_over_mean_requests']:.1f} times the mean load")
    remarks += rejections(summary["requests"]["rejected"], summary["requests"]["rejected_examples"])
    if _only_tails(summary):
        remarks.append(
            "note: all blocks are partial ones, which nothing keeps with --tails drop; give --tails keep to cache them"
        )
    elif summary["rates"]["block"] in (0.0, 1.0):
        remarks.append(
            "note: a rate of exactly 0 or 1 is often a mistake; kvbench trace inspect shows what reuse there is"
        )
    if summary["capacity_blocks"] is None and summary["blocks"] is not None and "tiers" not in summary:
        remarks.append("note: with infinite capacity nothing is evicted; give --capacity 10k, 10% or 64GiB to size it")
    remarks += [f"wrote {path}" for path in (config.output, config.events, config.timeline) if path]
    return remarks


def _only_tails(summary: dict[str, Any]) -> bool:
    """Whether every block that was asked for is a partial one that was not kept."""
    blocks = summary["blocks"]
    return blocks is not None and 0 < blocks["asked"] == summary["misses"]["partial"]
