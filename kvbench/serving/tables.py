"""The compute model ``table``: grids of measured times from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.serving.measured import read_measured
from kvbench.serving.timetable import Grid, Timetable

if TYPE_CHECKING:
    from kvbench.serving.compute import ComputeContext

PREFILL_AXES = ("new_tokens", "context_tokens")
DECODE_AXES = ("decodes", "decode_context", "context_tokens")
"""Columns that axes can be: the first one, or ``decode_context``, and where it is there the last one."""


def make_table(
    context: ComputeContext,
    *,
    extrapolate: bool,
    mix: str,
    prefill: str | None = None,
    decode: str | None = None,
) -> Timetable:
    """``table`` from a file for each part of a step.

    Raises ConfigError for a file that cannot be read, lacks a column, or is not a full grid, and where
    neither is given.
    """
    if prefill is None and decode is None:
        raise ConfigError("compute model table: give prefill=FILE, decode=FILE or both")
    decode_grid, by_context = (None, False) if decode is None else _decode_grid(decode, extrapolate)
    prefill_grid = None if prefill is None else _grid(prefill, list(PREFILL_AXES), extrapolate)
    return Timetable(context, prefill_grid, decode_grid, by_context=by_context, mix=mix)


def _decode_grid(file: str, extrapolate: bool) -> tuple[Grid, bool]:
    columns = read_measured(Path(file)).columns
    by_context = "decodes" not in columns and "decode_context" in columns
    return _grid(file, ["decode_context" if by_context else "decodes", "context_tokens"], extrapolate), by_context


def _grid(file: str, axes: list[str], extrapolate: bool) -> Grid:
    measured = read_measured(Path(file))
    names = axes if measured.has(axes[1]) else axes[:1]
    columns = [measured.counts(name) for name in names]
    found: dict[tuple[int, ...], float] = {}
    for point, time_ns in zip(zip(*columns, strict=True), measured.times_ns(), strict=True):
        if point in found:
            raise ConfigError(f"{file}: two rows are of {_shown(names, point)}; keep one, or their mean")
        found[point] = time_ns
    points = [sorted(set(column)) for column in columns]
    every = [(x,) for x in points[0]] if len(points) == 1 else [(x, y) for x in points[0] for y in points[1]]
    for point in every:
        if point not in found:
            raise ConfigError(f"{file}: there is no row of {_shown(names, point)}; a table is a full grid")
    return Grid(file, list(zip(names, points, strict=True)), [found[point] for point in every], extrapolate)


def _shown(names: list[str], point: tuple[int, ...]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in zip(names, point, strict=True))
