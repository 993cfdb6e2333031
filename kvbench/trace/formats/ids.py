"""Ids as logs write them: numbers, hexadecimal digests, any text, alone or many in one text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from kvbench.errors import shorten
from kvbench.trace.formats.values import Bad, Values

if TYPE_CHECKING:
    from collections.abc import Sequence

ID_BITS = 64
MAX_ID = (1 << ID_BITS) - 1
BASES = ("auto", "decimal", "hex", "text")
IDS = pa.list_(pa.uint64())

_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,1024})")
_DECIMAL = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def id_of(value: object, base: str = "auto") -> int:
    """The 64-bit id that a log writes as ``value``. Raises Bad.

    A negative number of 64 bits stands for the unsigned one of the same bits. A hexadecimal number of more than
    16 digits is a digest; its first 8 bytes, little-endian, are the id, as they are for keys (semantics §2.2).
    ``base``: ``auto`` takes text as hexadecimal where it starts with 0x and as decimal otherwise; ``text`` hashes it.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << (ID_BITS - 1)) <= value <= MAX_ID:
            raise Bad(f"{shorten(value)} is not a number of {ID_BITS} bits")
        return value & MAX_ID
    if not isinstance(value, str):
        raise Bad(f"{shorten(value)} must be a number or a text")
    if base == "text":
        return int.from_bytes(blake3(value.encode("utf-8", "surrogateescape")).digest()[:8], "little")
    text = value.strip().strip("\"'")
    if base == "hex" or (base == "auto" and text[:2] in ("0x", "0X")):
        return _hexadecimal(text)
    if _DECIMAL.fullmatch(text) is None:
        advice = "; if it is hexadecimal, or any text, say so" if base == "auto" else ""
        raise Bad(f"{shorten(text)} must be a decimal number of {ID_BITS} bits{advice}")
    return id_of(int(text))


def _hexadecimal(text: str) -> int:
    match = _HEX.fullmatch(text)
    if match is None:
        raise Bad(f"{shorten(text)} must be a hexadecimal number")
    digits = match.group(1)
    if len(digits) <= ID_BITS // 4:
        return int(digits, 16)
    if len(digits) % 2:
        raise Bad(f"{shorten(text)} must have two digits a byte")
    return int.from_bytes(bytes.fromhex(digits[: ID_BITS // 4]), "little")


def ids_of(values: object, base: str = "auto", high: int = MAX_ID) -> list[int]:
    """The ids of a list. Raises Bad."""
    if not isinstance(values, list):
        raise Bad("must be a list")
    if all(type(value) is int for value in values) and (not values or 0 <= min(values) <= max(values) <= high):
        return values
    ids = [id_of(value, base) for value in values]
    if high != MAX_ID and ids and max(ids) > high:
        raise Bad(f"must be from 0 to {high}, and {max(ids)} is not")
    return ids


@dataclass(frozen=True, slots=True)
class IdLists:
    """Lists of ids: as lists, or as text with ``separator`` (blanks, where it is empty) between, in brackets or not.

    ``kind``  the list type of the trace's column; ``high`` is the largest id it holds.
    """

    separator: str = ""
    base: str = "auto"
    kind: pa.DataType = IDS
    high: int = MAX_ID

    def __call__(self, texts: pa.Array) -> Values:
        """The ids of a column of text."""
        if self.base in ("auto", "decimal") and self.separator:
            pieces = pc.split_pattern(texts, self.separator)
            if texts.null_count == 0 and pc.all(pc.ascii_is_decimal(pieces.flatten())).as_py() is not False:
                try:
                    return Values(pieces.cast(self.kind))
                except pa.ArrowInvalid:
                    pass  # a number of more bits, which is named below
        return self._read([None if text is None else self.split(text) for text in texts.to_pylist()])

    def split(self, text: str) -> list[str]:
        """The pieces of one text."""
        text = text.strip().removeprefix("[").removesuffix("]").strip()
        pieces = text.split(self.separator) if self.separator else text.replace(",", " ").split()
        return [piece.strip() for piece in pieces] if text else []

    def of_lists(self, values: Sequence[object]) -> Values:
        """The ids of values that are lists, texts, or not there (None)."""
        return self._read([self.split(value) if isinstance(value, str) else value for value in values])

    def _read(self, values: Sequence[object]) -> Values:
        found: list[list[int] | None] = []
        refused: dict[int, tuple[object, str]] = {}
        for row, value in enumerate(values):
            ids = None
            if value is not None:
                try:
                    ids = ids_of(value, self.base, self.high)
                except Bad as bad:
                    refused[row] = (value, str(bad))
            found.append(ids)
        return Values(pa.array(found, self.kind), refused)
