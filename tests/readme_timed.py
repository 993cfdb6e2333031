"""The parts of the README on the figures of timed replays."""

from __future__ import annotations

from readme import names, table

from kvbench.results.goodput import GOODPUT_DEFINITION
from kvbench.results.latency import ITL_DEFINITION, LATENCIES
from kvbench.results.requests import TIMED
from kvbench.results.throughput import THROUGHPUT, WORK
from kvbench.results.timedtimeline import TIMED_COLUMNS
from kvbench.results.timeline import TIMELINE_SCHEMA
from kvbench.results.timetable import LATENCY_COLUMNS, TABLE_COLUMNS
from kvbench.results.verdict import SIGNALS, STATES


def figures() -> None:
    """Print what each figure is."""
    rows = [(f"`{name}_ns`", text) for name, text in (LATENCIES | {"itl": ITL_DEFINITION}).items()]
    rows += [("`goodput`", GOODPUT_DEFINITION)]
    rows += [(f"`throughput.{name}_per_s`", text) for name, text in THROUGHPUT.items()]
    rows += [(f"`work.{name}`", text) for name, text in WORK.items()]
    table(("figure", "definition"), rows)


def verdicts() -> None:
    """Print what the verdict is made of, and when which is given."""
    table(("signal", "what it is"), ((f"`{name}`", text) for name, text in SIGNALS.items()))
    print()
    table(("verdict", "when"), ((f"`{name}`", text) for name, text in STATES.items()))


def request_columns() -> None:
    rows = {"arrival_ns": "intended arrival on the simulated clock", **TABLE_COLUMNS, **LATENCY_COLUMNS}
    rows |= {column.name: column.help for column in TIMED}
    rows["trace_arrival_ns"] = "arrival by the trace, where that may be another"
    table(("column", "meaning"), ((f"`{name}`", text) for name, text in rows.items()))


def timeline_columns() -> None:
    table(("column", "meaning"), ((f"`{name}`", text) for name, text in TIMED_COLUMNS.items()))
    print("\nand of stores, as above: ", end="")
    names(TIMELINE_SCHEMA.names[4:])
