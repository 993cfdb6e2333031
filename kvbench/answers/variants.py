"""Replays that differ in a few settings, run as one sweep: what recipes about systems are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.config import RunConfig, load_config
from kvbench.results.run import run_replay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbench.answers.answer import Asked

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


def run_variants(asked: Asked, variants: Sequence[Variant], *, name: str = "sweep") -> list[Ran]:
    done = []
    for variant in variants:
        result = run_replay(load_config(None, dict(variant.settings)), asked.registry)
        done.append(Ran(variant.label, variant.settings, result.summary))
    return done


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table of ``rows``, without the columns in which nothing is known."""
    names = dict.fromkeys(name for row in rows for name in row)
    known = [name for name in names if any(row.get(name) is not None for row in rows)]
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in known})
