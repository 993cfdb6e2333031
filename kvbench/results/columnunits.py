"""Units of columns and figures, as their names say them: ``ttft_ns``, ``rates.token``, ``output_tokens_per_s``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIT_KEY = "unit"
"""Key of a field's metadata."""

UNITS_KEY = "kvbench.units"
"""Key of a file's metadata, for readers that show no field's: a JSON object of column and unit."""

UNITS: Mapping[str, str] = {
    **dict.fromkeys(("share", "shares", "rate", "rates", "utilisation"), "share"),
    "max_over_mean": "ratio",
    "ns": "ns",
    "s": "s",
    "bytes": "bytes",
    "chunks": "chunks",
    "tokens": "tokens",
    "operations": "operations",
    **dict.fromkeys(("blocks", "misses"), "blocks"),
    "requests": "requests",
}
"""Word of a name → unit, the first that fits."""

_PER_S = re.compile(r"(?:^|[._])(?P<what>[a-z]+)_per_(?P<time>busy_s|s)(?=$|[._])")
_WORDS = [(re.compile(rf"(^|[._]){word}(?=$|[._])"), unit) for word, unit in UNITS.items()]


def unit_of(name: str) -> str | None:
    """The unit of the column or figure ``name``; None where its name has none: a number, an id, a text."""
    per_s = _PER_S.search(name)
    if per_s is not None:
        return f"{UNITS.get(per_s['what'], per_s['what'])}/s"
    return next((unit for pattern, unit in _WORDS if pattern.search(name)), None)


def with_units(schema: pa.Schema) -> pa.Schema:
    """``schema`` with the unit of each number in its field's metadata; one that has a unit there keeps it."""
    return pa.schema([_with_unit(field) for field in schema], schema.metadata)


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Column → unit, of those that have one in their metadata."""
    units = {field.name: (field.metadata or {}).get(UNIT_KEY.encode(), b"").decode() for field in schema}
    return {name: unit for name, unit in units.items() if unit}


def _with_unit(field: pa.Field) -> pa.Field:
    known = field.metadata or {}
    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    unit = unit_of(field.name) if is_number else None
    if unit is None or UNIT_KEY.encode() in known:
        return field
    return field.with_metadata({**known, UNIT_KEY.encode(): unit.encode()})
