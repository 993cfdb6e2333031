"""The table that compares routers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.cli.routingtables import TOKENS
from kvbench.cli.tables import Printer, print_clock, simple_table, times
from kvbench.results.evenness import EVENNESS
from kvbench.results.headline import number, percent

if TYPE_CHECKING:
    from kvbench.config import RunConfig
    from kvbench.results.matrix import MatrixResult

BOUNDS = {"belady_rates": "Belady, one pool of all (bound)", "infinite_rates": "infinite (bound)"}


def print_routers(result: MatrixResult, config: RunConfig) -> None:
    """Print hit rate against load: a row for each router, and bounds below those of a capacity."""
    out = Printer()
    cells = result.cells
    requests = cells[0]["requests"]
    out.print(
        f"[bold]{config.trace}[/bold] · {requests:,} requests · {config.workers} workers · "
        f"{len(cells)} replays of one pass"
    )
    out.print()
    table = simple_table(
        "capacity", "policy", "router", "index", "token", "block", "max/mean requests", "max/mean computed",
        "routed away tokens", "stale tokens", "unforeseen tokens",
    )  # fmt: skip
    for column in (1, 2, 3):
        table.columns[column].justify = "left"
    for blocks in dict.fromkeys(cell["capacity_blocks"] for cell in cells):
        mine = [cell for cell in cells if cell["capacity_blocks"] == blocks]
        capacity = "infinite" if blocks is None else f"{blocks:,}"
        best = result.best(blocks)
        for cell in mine:
            mark = " *" if (cell["policy"], cell["router"]) in best else ""
            names = (capacity, cell["policy"], cell["router"] + mark, cell["index"])
            table.add_row(*names, *_rates(cell["rates"]), *_figures(cell))
        for rates, name in BOUNDS.items():
            if mine[0][rates]["token"] is not None:
                table.add_row(capacity, "–", name, "–", *_rates(mine[0][rates]))
    out.print(table)
    out.print()
    out.print("* best token rate of its capacity")
    out.print(f"max/mean computed: {EVENNESS['max_over_mean_computed_tokens']}")
    for name in ("routed_away", "stale", "unforeseen"):
        out.print(f"{name.replace('_', ' ')}: {TOKENS[name]}")
    if config.output:
        out.print(f"wrote {config.output}")
    print_clock(out, result.wall_clock)


def _rates(rates: dict[str, float | None]) -> list[str]:
    return [percent(rates[name]) for name in ("token", "block")]


def _figures(cell: dict[str, Any]) -> list[str]:
    uneven = [times(cell[name]) for name in ("max_over_mean_requests", "max_over_mean_computed_tokens")]
    return [*uneven, *(number(cell[f"{name}_tokens"]) for name in ("routed_away", "stale", "unforeseen"))]
