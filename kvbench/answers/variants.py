"""Replays that differ in a few settings, run as one sweep: what recipes about systems are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from kvbench.config import RunConfig, load_config
from kvbench.errors import ConfigError
from kvbench.results.run import open_configured
from kvbench.sweeps.plan import SweepPlan
from kvbench.sweeps.run import run_sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbench.answers.answer import Asked
    from kvbench.trace.reader import Trace

Number = TypeVar("Number", int, float)

ALONE = ("router", "routers", "index", "event_channel", "load", "workers_per_host")
"""Settings that mean nothing to one worker."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One replay of a recipe.

    ``label``     what tells it from the others: the first columns of its row.
    ``settings``  all of its settings: keys of a run file.
    """

    label: dict[str, Any]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ran:
    """A variant whose replay is done, and what it found."""

    label: dict[str, Any]
    settings: dict[str, Any]
    summary: dict[str, Any]


def given_settings(config: RunConfig) -> dict[str, Any]:
    """The settings of ``config`` that are not at their defaults; those of a preset stand in its place."""
    defaults = RunConfig().to_dict()
    found = {name: value for name, value in config.to_dict().items() if value != defaults.get(name)}
    found.pop("preset", None)
    return found


def part_name(choice: Any) -> str:
    """How a part is typed: ``name,key=value``."""
    if isinstance(choice, str):
        return choice
    return ",".join([choice["name"], *(f"{key}={value}" for key, value in choice.items() if key != "name")])


def read_trace(config: RunConfig, *, needs_ids: bool = True) -> Trace:
    """The trace of ``config``, all of whose rows have been read, so that its digest is known. Raises TraceError for one
    without ids, unless these are not needed, and ConfigError for standard input, which can be read only once."""
    if config.trace == "-":
        raise ConfigError("replays read the trace many times, which standard input cannot be; save it to a file")
    trace = open_configured(config)
    if needs_ids:
        trace.need_ids()
    for _ in trace.batches():
        pass
    return trace


def number_of(given: float | str, kind: type[Number], setting: str) -> Number:
    """A number that may have been typed. Raises ConfigError for what is none."""
    try:
        return kind(given)
    except ValueError:
        raise ConfigError(f"{setting} {given}: this is no {'whole ' if kind is int else ''}number") from None


def run_variants(
    asked: Asked, variants: Sequence[Variant], *, name: str | None = "sweep", left_out: list[str] | None = None
) -> list[Ran]:
    """The replays of ``variants``, which share a trace, in their order.

    ``name``      of the sweep in the folder of the answer; None: it is kept nowhere, and runs in this process.
    ``left_out``  takes a sentence on each replay that fails, which is then not in the result.

    Raises ConfigError for settings that cannot be, before any replay; and for one that fails, without ``left_out``.
    """
    for variant in variants:
        load_config(None, dict(variant.settings))
    output = asked.file(f"{name}.parquet") if name is not None else None
    result = run_sweep(
        _plan(variants),
        asked.registry,
        executor=asked.executor if name is not None else None,
        output=output,
        force=asked.force and output is not None,
        method="replay",
        progress=asked.cell_progress,
        autoload=asked.autoload,
    )
    ran = []
    for variant, cell in zip(variants, result.cells, strict=True):
        error = cell.error if cell.summary is None else _nothing_done(cell.summary)
        if cell.summary is not None and error is None:
            ran.append(Ran(variant.label, variant.settings, cell.summary))
            continue
        label = ", ".join(f"{key} = {value}" for key, value in variant.label.items() if value is not None)
        failure = f"{label}: {error}"
        if left_out is None:
            raise ConfigError(failure)
        left_out.append(f"Left out: {failure}.")
    if not ran:
        raise ConfigError("; ".join(left_out or ["there is nothing to replay"]))
    return ran


def _nothing_done(summary: Mapping[str, Any]) -> str | None:
    """Why there is nothing to go by, where no request that counts is done."""
    if summary.get("timed", summary)["requests"]["done"]:
        return None
    examples: list[str] = summary["requests"]["rejected_examples"]
    return f"no request that counts is done{''.join(f'; {each}' for each in examples[:1])}"


def _plan(variants: Sequence[Variant]) -> SweepPlan:
    """A sweep with a cell for each variant: what all of them have in common, and what they do not."""
    first = variants[0].settings
    base = {
        name: value
        for name, value in first.items()
        if name != "trace" and all(each.settings.get(name) == value for each in variants)
    }
    own = [
        {name: value for name, value in each.settings.items() if name not in base and name != "trace"}
        for each in variants
    ]
    return SweepPlan(str(first["trace"]), base, combinations=own)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table of ``rows``, without the columns in which nothing is known."""
    names = dict.fromkeys(name for row in rows for name in row)
    known = [name for name in names if any(row.get(name) is not None for row in rows)]
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in known})
