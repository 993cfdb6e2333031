"""Namespaces: everything but the tokens that makes KV bytes unusable for each other."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = str | int | tuple["Value", ...]

LAYOUT = b"kvbench namespace 1"
"""First bytes of what is hashed; a change of the layout changes this name."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The identity of a pool of KV bytes (semantics §2.1).

    ``model``     model name.
    ``weights``   version of its weights.
    ``kv_dtype``  type of the KV entries, for example ``fp8_e4m3``.
    ``parallel``  parallel layout, for example ``tp8``.
    ``rank``      rank, where ranks hold different bytes.
    ``adapter``   adapter name, or name and version.
    ``salt``      tenant salt.
    ``tags``      anything else, by name.

    A field that is empty is the same as one that is absent; the order of tags does not matter.
    """

    model: str = ""
    weights: str = ""
    kv_dtype: str = ""
    parallel: str = ""
    rank: int | None = None
    adapter: str | tuple[str, str | int] = ""
    salt: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def root(self) -> bytes:
        """32 bytes that start every chain of this namespace: the BLAKE3 of its fields, each
        tagged, typed and with its length, sorted by tag."""
        return blake3(LAYOUT + b"".join(_encode(pair) for pair in sorted(self._fields()))).digest()

    def is_empty(self) -> bool:
        """True if nothing sets this namespace apart."""
        return not self._fields()

    def _fields(self) -> list[tuple[str, Value]]:
        named: list[tuple[str, Value | None]] = [
            ("model", self.model),
            ("weights", self.weights),
            ("kv_dtype", self.kv_dtype),
            ("parallel", self.parallel),
            ("rank", self.rank),
            ("adapter", self.adapter),
            ("salt", self.salt),
            *((f"tag:{name}", value) for name, value in self.tags.items()),
        ]
        return [(tag, value) for tag, value in named if value is not None and value not in ("", ())]


def _encode(value: Value) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return b"s" + struct.pack("<I", len(text)) + text
    if isinstance(value, int):
        return b"i" + struct.pack("<q", value)
    return b"t" + struct.pack("<I", len(value)) + b"".join(_encode(part) for part in value)
