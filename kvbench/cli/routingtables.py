"""The tables of routing that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.cli.tables import add_remarks, simple_table
from kvbench.results.headline import number, percent
from kvbench.results.routing import CHANNEL_COUNTS, EVENT_COUNTS, STATE_COUNTS

if TYPE_CHECKING:
    from rich.table import Table

TOKENS = {
    "best": "the longest prefix that any worker held",
    "predicted": "what the index saw at the chosen worker",
    "delivered": "what hit there",
    "routed_away": "best less delivered: another worker held it",
    "stale": "predicted and not delivered: the index was wrong",
    "unforeseen": "delivered and not predicted",
}


def routing_tables(routing: dict[str, Any], input_tokens: int) -> list[Table]:
    """Tokens by what became of them, and the counters of the routers' own indexes if they have any."""
    table = simple_table("routing", "tokens", "of input")
    add_remarks(table)
    for name, text in TOKENS.items():
        tokens = routing[f"{name}_tokens"]
        if tokens or name != "unforeseen":
            table.add_row(
                name.replace("_", " "), number(tokens), percent(tokens / input_tokens if input_tokens else None), text
            )
    return [table, *([_index_table(routing["index"])] if routing["index"] is not None else [])]


def _index_table(counts: dict[str, int]) -> Table:
    table = simple_table("index", "count")
    add_remarks(table)
    for name, text in (STATE_COUNTS | EVENT_COUNTS | CHANNEL_COUNTS).items():
        if counts.get(name, 0) or name in ("held_blocks", "phantom_blocks"):
            table.add_row(name.replace("_", " "), number(counts[name]), text)
    return table
