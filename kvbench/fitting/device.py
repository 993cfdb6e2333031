"""Fits bandwidth and latency of a device, each direction by itself, to the times of operations.

An operation takes ``latency + in_flight · bytes / bandwidth``: those that run together share the link.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kvbench.config import parse_part
from kvbench.errors import ConfigError
from kvbench.fitting.fitted import Fit, FittedParameter, FittedRow, enough, rounded
from kvbench.fitting.outputs import OPERATIONS, read_operations
from kvbench.fitting.solve import explained, non_negative
from kvbench.specs import DeviceSpec
from kvbench.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvbench.fitting.outputs import Operation
    from kvbench.plugins import Registry

NS_PER_US = 1000


def fit_device(
    registry: Registry, path: Path, device: str, *, columns: Mapping[str, str] | None = None, tier: str = "TIER"
) -> Fit:
    """``device`` (``NAME,key=value,…``) with bandwidth and latency of each measured direction fitted to ``path``.

    ``columns``  what the file calls bytes, operation, in_flight and the time.
    ``tier``     name of the tier in the option that uses it.

    Errors are relative. Raises ConfigError for rows that are wrong or too few, or whose times do not grow
    with their size.
    """
    name, given = parse_part(device, "--device")
    spec = registry.get(DeviceSpec, name)
    fixed = spec.parse_params(given)
    operations = read_operations(path, columns)
    figures: dict[str, float] = {}
    parameters: list[FittedParameter] = []
    notes: list[str] = []
    for kind in OPERATIONS:
        rows = [each for each in operations if each.kind == kind]
        if rows:
            found = _direction(
                f"{path}: {kind}s", kind, rows, {key: float(fixed[key]) for key in fixed if _is(kind, key)}
            )
            figures |= found
            helps = {param.name: param.help for param in spec.params}
            parameters += [
                FittedParameter(key, value, helps.get(key, ""), "given" if key in fixed else "fit")
                for key, value in found.items()
            ]
            note = enough(len(rows), [key for key in found if key not in fixed])
            notes += [f"{kind}s: {note}"] if note else []
    text = {key: value for key, value in fixed.items() if key not in figures} | figures
    return Fit(
        "device",
        name,
        str(path),
        tuple(parameters),
        tuple(_row(each, figures) for each in operations),
        f"--tier {tier},…,device={name}," + ",".join(f"device.{key}={_text(value)}" for key, value in text.items()),
        _toml(name, text, str(path)),
        f"--devices {{path}} --tier {tier},…,device={name}-measured",
        tuple(notes),
    )


def _is(kind: str, key: str) -> bool:
    return key in (f"{kind}_gb_per_s", f"{kind}_latency_us")


def _direction(where: str, kind: str, rows: Sequence[Operation], fixed: dict[str, float]) -> dict[str, float]:
    """GB/s and µs of one direction. A byte at 1 GB/s takes one nanosecond."""
    bandwidth, latency = f"{kind}_gb_per_s", f"{kind}_latency_us"
    moved = np.array([each.in_flight * each.size for each in rows])
    times = np.array([each.time_ns for each in rows])
    unknown = [key for key in (latency, bandwidth) if key not in fixed]
    if len(rows) < len(unknown):
        raise ConfigError(
            f"{where}: {len(rows)} row does not tell {' from '.join(unknown)}; measure another size, or give one"
        )
    columns = {latency: np.full(len(rows), float(NS_PER_US)), bandwidth: moved}
    known = {latency: fixed.get(latency, 0.0), bandwidth: 1 / fixed[bandwidth] if bandwidth in fixed else 0.0}
    target = times - sum(columns[key] * known[key] for key in columns)
    if unknown:
        matrix = np.column_stack([columns[key] for key in unknown]) / times[:, None]
        if explained(matrix) is not None:
            raise ConfigError(
                f"{where}: all rows move as many bytes; measure another size, or give {' or '.join(unknown)}"
            )
        known |= {key: float(x) for key, x in zip(unknown, non_negative(matrix, target / times), strict=True)}
    if known[bandwidth] <= 0 or not math.isfinite(1 / known[bandwidth]):
        raise ConfigError(f"{where}: their times do not grow with their size, so there is no bandwidth to find")
    return {bandwidth: rounded(1 / known[bandwidth]), latency: rounded(known[latency])}


def _row(operation: Operation, figures: dict[str, float]) -> FittedRow:
    moved = operation.in_flight * operation.size
    fitted = figures[f"{operation.kind}_latency_us"] * NS_PER_US + moved / figures[f"{operation.kind}_gb_per_s"]
    flight = "" if operation.in_flight == 1 else f", {operation.in_flight:.3g} in flight"
    what = f"{operation.kind} {format_bytes(operation.size)}{flight}"
    return FittedRow(operation.row, what, operation.time_ns, fitted)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _toml(name: str, figures: Mapping[str, object], source: str) -> str:
    import tomli_w

    sources = dict.fromkeys(figures, f"kvbench fit device {source}")
    return tomli_w.dumps({f"{name}-measured": {"like": name, **figures, "sources": sources}})
