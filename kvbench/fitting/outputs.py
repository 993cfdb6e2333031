"""Rows of operations from what storage benchmarks print: fio's JSON, and nixlbench's table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.errors import ConfigError, reason, shorten
from kvbench.serving.measured import read_measured
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COLUMNS = ("bytes", "operation", "in_flight")
"""What a row may say beside its time: ``operation`` (read without it), ``in_flight`` (1 without it)."""

OPERATIONS = ("read", "write")

_BLOCK, _BATCH = "block size (b)", "batch size"
_BANDWIDTH = re.compile(r"^b/w \((gb|mib|gib)/sec\)$")
_BANDWIDTH_BYTES = {"gb": 10**9, "mib": 2**20, "gib": 2**30}
_SETTING = re.compile(r"^(?P<name>num threads|op type)\b.*:\s*(?P<value>\w+)\s*$")
_CELLS = re.compile(r"\s*,\s*|\s{2,}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One measured row: an operation of ``size`` bytes took so long while ``in_flight`` of them ran."""

    row: int
    kind: str
    size: int
    in_flight: float
    time_ns: float


def read_operations(path: Path, columns: Mapping[str, str] | None = None) -> list[Operation]:
    """The operations of ``path``: what ``fio --output-format=json`` or nixlbench printed, or a file with
    columns ``bytes``, a time, and maybe ``operation`` and ``in_flight``.

    Raises ConfigError for a file that is none of these.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.suffix not in (".parquet", ".jsonl", ".csv") else ""
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None
    except UnicodeDecodeError:
        text = ""
    if '"fio version"' in text:
        return _fio(str(path), text)
    if path.suffix != ".parquet" and _BLOCK in (text or _head(path)).lower():
        return _nixlbench(str(path), text or path.read_text(encoding="utf-8"))
    return _rows(path, columns)


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None


def _rows(path: Path, columns: Mapping[str, str] | None) -> list[Operation]:
    measured = read_measured(path, columns, COLUMNS)
    if not measured.has("bytes"):
        raise ConfigError(
            f"{path}: has no column bytes; the columns are {', '.join(measured.columns)}: say which it is, as in "
            "--column bytes=NAME"
        )
    sizes, flights, times = measured.counts("bytes"), measured.floats("in_flight", 1.0, 1.0), measured.times_ns()
    found = []
    for at, (size, in_flight, time_ns) in enumerate(zip(sizes, flights, times, strict=True)):
        kind = str(measured.rows[at].get("operation") or "read").lower()
        if kind not in OPERATIONS:
            raise measured.error(at, "operation", kind, "must be read or write")
        found.append(Operation(measured.numbers[at], kind, size, in_flight, time_ns))
    return found


def _fio(name: str, text: str) -> list[Operation]:
    """A row for each job and direction: its mean block and mean time. How many were in flight is Little's
    law over the jobs that ran together (one ``groupid``): Σ operations a second · mean time."""
    try:
        document = msgspec.json.decode(text[text.index("{") :])
        jobs = document["jobs"]
        parts = [
            (number, job.get("groupid", 0), kind, job[kind])
            for number, job in enumerate(jobs, 1)
            for kind in OPERATIONS
            if job.get(kind, {}).get("total_ios")
        ]
        flights: dict[tuple[int, str], float] = {}
        for _, group, kind, part in parts:
            flights[group, kind] = flights.get((group, kind), 0.0) + part["iops"] * _mean_ns(part) / NS_PER_S
        found = [
            Operation(number, kind, _block(part), max(flights[group, kind], 1.0), _mean_ns(part))
            for number, group, kind, part in parts
        ]
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{name}: not what fio --output-format=json prints: {error!r}") from None
    if not found:
        raise ConfigError(f"{name}: no job of fio read or wrote anything")
    return found


def _mean_ns(part: dict[str, Any]) -> float:
    mean = float(part["lat_ns"]["mean"])
    if mean <= 0:
        raise ValueError("a mean latency of 0 ns")
    return mean


def _block(part: dict[str, Any]) -> int:
    return round(float(part["io_bytes"]) / float(part["total_ios"]))


def _nixlbench(name: str, text: str) -> list[Operation]:
    """A row for each line of the tables: a batch of blocks is one operation, each thread has one in flight,
    and the time follows from the bandwidth that it prints."""
    settings = {"num threads": "1", "op type": "write"}
    header: list[str] = []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.lower() for cell in _CELLS.split(line.strip()) if cell]
        setting = _SETTING.match(line.strip().lower())
        if setting is not None:
            settings[setting["name"]] = setting["value"]
        elif _BLOCK in cells:
            header = cells
        elif header and len(cells) == len(header) and cells[0].isdigit():
            found.append(_nixlbench_row(name, number, dict(zip(header, cells, strict=True)), settings))
    if not found:
        raise ConfigError(f"{name}: nixlbench's table has no rows")
    return found


def _nixlbench_row(name: str, number: int, row: dict[str, str], settings: dict[str, str]) -> Operation:
    try:
        column, unit = next((cell, match[1]) for cell in row if (match := _BANDWIDTH.match(cell)))
        size = int(row[_BLOCK]) * int(row[_BATCH])
        bytes_per_s = float(row[column]) * _BANDWIDTH_BYTES[unit]
        threads = int(settings["num threads"])
        kind = settings["op type"]
        if kind not in OPERATIONS or not (bytes_per_s > 0 and size > 0 and threads > 0):
            raise ValueError
    except (StopIteration, KeyError, ValueError):
        raise ConfigError(f"{name}, line {number} = {shorten(row)}: not a row of nixlbench's table") from None
    return Operation(number, kind, size, float(threads), threads * size / bytes_per_s * NS_PER_S)
