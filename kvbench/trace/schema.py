"""Trace schema version 1: the columns of a trace and the facts in its file's metadata.

A trace is a table with one row a request, sorted by arrival. Lists hold the request's blocks or
tokens from first to last. See :data:`COLUMNS` for the columns and :class:`TraceFacts` for what
the metadata says of all rows at once.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.errors import TraceError, shorten
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 1
METADATA_KEY = b"kvbench.trace"
IGNORED_PREFIX = "x_"
"""Columns whose name starts so belong to others; they are left out without complaint."""

TAIL_RULES = ("ceil", "floor")
ID_KINDS = ("prefix", "content")
ID_SCOPES = ("file", "session", "global")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Arrow type, whether a trace must have it, and what it holds."""

    name: str
    type: Any
    required: bool
    help: str


COLUMNS: tuple[Column, ...] = (
    Column("arrival_ns", pa.int64(), True, "intended arrival, nanoseconds from the trace's origin; never decreases"),
    Column("input_tokens", pa.uint32(), True, "length of the prompt in tokens, at least 1"),
    Column("output_tokens", pa.uint32(), False, "length of the answer in tokens; null when unknown"),
    Column("block_ids", pa.list_(pa.uint64()), False, "one id a block of the prompt"),
    Column("token_ids", pa.list_(pa.uint32()), False, "one id a token of the prompt; never beside block_ids"),
    Column("request_id", pa.string(), False, "name of the request"),
    Column("session_id", pa.string(), False, "name of the conversation"),
    Column("turn", pa.uint32(), False, "position in the conversation, from 0"),
    Column("think_time_ns", pa.int64(), False, "pause between the previous turn's end and this request"),
    Column("model", pa.string(), False, "model asked for"),
    Column("adapter", pa.string(), False, "adapter asked for"),
    Column("tenant", pa.string(), False, "who asks"),
    Column("priority", pa.int32(), False, "scheduling priority"),
    Column("type", pa.string(), False, "category of the request"),
    Column("output_token_ids", pa.list_(pa.uint32()), False, "one id a token of the answer"),
    Column("output_block_ids", pa.list_(pa.uint64()), False, "ids of the blocks that the answer fills"),
    Column("original_ids", pa.list_(pa.uint64()), False, "block_ids as they were before the import renumbered them"),
)
COLUMN_BY_NAME: Mapping[str, Column] = {column.name: column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What holds for every row of a trace.

    ``block_tokens``   tokens of a full block; None when the file does not say.
    ``tail_rule``      ``ceil``: a partial last block has an id; ``floor``: it has none.
    ``id_kind``        ``prefix``: an id stands for its block and all before it; ``content``: for its own tokens.
    ``id_scope``       where equal ids mean equal blocks: ``file``, ``session`` or ``global``.
    ``dense``          block ids are 0 … U-1, numbered in first-seen order.
    ``source_name``, ``source_format``, ``source_digest``  what the trace was made from;
                       the digest is ``blake3:`` and the hex digest of the source's bytes.
    ``version``        of the schema.
    ``capacity_factor``  of a sample: the share of the whole trace's units that are here. A cache for the whole
                       trace corresponds to one of this share of its capacity here.
    """

    block_tokens: int | None = None
    tail_rule: str = "ceil"
    id_kind: str = "prefix"
    id_scope: str = "file"
    dense: bool = False
    source_name: str = ""
    source_format: str = ""
    source_digest: str = ""
    version: int = SCHEMA_VERSION
    capacity_factor: float = 1.0

    def with_block_tokens(self, block_tokens: int | None) -> TraceFacts:
        """The facts with another block size, unless that is None."""
        return self if block_tokens is None else dataclasses.replace(self, block_tokens=block_tokens)

    def to_metadata(self) -> dict[bytes, bytes]:
        """The facts as Arrow schema metadata: one key with canonical JSON. What is no sample says nothing of one."""
        said = dataclasses.asdict(self)
        if self.capacity_factor == 1.0:
            del said["capacity_factor"]
        return {METADATA_KEY: canonical_json(said).encode()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None, where: str) -> TraceFacts:
        """The facts in a file's schema metadata, defaults where the key is absent.

        Raises TraceError for another schema version and for values that version 1 does not know.
        """
        if not metadata or METADATA_KEY not in metadata:
            return cls()
        try:
            said = json.loads(metadata[METADATA_KEY])
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{where}: metadata kvbench.trace is not JSON: {error}") from None
        if not isinstance(said, dict):
            raise TraceError.at(where, None, "metadata kvbench.trace", said, "must be a JSON object")
        _check_version(said.get("version"), where)
        known = {field.name for field in dataclasses.fields(cls)}
        for name in said:
            if name not in known:
                raise TraceError(
                    f"{where}: unknown fact {name!r} in the metadata; known are {', '.join(sorted(known))}"
                )
        for name, value in said.items():
            _check_fact(name, value, where)
        return cls(**said)


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _check_version(version: object, where: str) -> None:
    if version == SCHEMA_VERSION and type(version) is int:
        return
    newer = type(version) is int and version > SCHEMA_VERSION
    advice = "update kvbench" if newer else "make it anew with `kvbench trace import`"
    rule = f"this kvbench reads trace schema version {SCHEMA_VERSION}; {advice}"
    raise TraceError.at(where, None, "schema version", version, rule)


def _check_fact(name: str, value: object, where: str) -> None:
    choices = {"tail_rule": TAIL_RULES, "id_kind": ID_KINDS, "id_scope": ID_SCOPES}.get(name)
    if choices is not None:
        if value not in choices:
            raise TraceError.at(where, None, f"fact {name}", value, f"must be one of {', '.join(choices)}")
    elif name == "block_tokens":
        if value is not None and (type(value) is not int or not 1 <= value <= MAX_TOKENS):
            rule = f"must be a whole number from 1 to {MAX_TOKENS:,}, or null"
            raise TraceError.at(where, None, "fact block_tokens", value, rule)
    elif name == "capacity_factor":
        if type(value) not in (int, float) or not 0 < value <= 1:  # type: ignore[operator]
            raise TraceError.at(where, None, "fact capacity_factor", value, "must be above 0 and at most 1")
    elif name == "dense":
        if not isinstance(value, bool):
            raise TraceError.at(where, None, "fact dense", value, "must be true or false")
    elif name != "version" and not isinstance(value, str):
        raise TraceError.at(where, None, f"fact {name}", value, "must be a string")


def normalise_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """The version 1 schema of a file with ``schema``: known columns in canonical order and type.

    Raises TraceError for a missing, unknown, repeated or wrongly typed column, and for two id
    columns. The metadata is not carried over.
    """
    seen: set[str] = set()
    for field in schema:
        if field.name.startswith(IGNORED_PREFIX):
            continue
        if field.name in seen:
            raise TraceError(f"{where}: column {field.name} stands twice")
        seen.add(field.name)
        column = COLUMN_BY_NAME.get(field.name)
        if column is None:
            known = ", ".join(COLUMN_BY_NAME)
            raise TraceError(
                f"{where}: unknown column {shorten(field.name)}; known are {known}, "
                f"and names that start with {IGNORED_PREFIX} are left out"
            )
        if not _castable(field.type, column):
            raise TraceError(f"{where}: column {column.name} has type {field.type}; it must be {column.type}")
    for column in COLUMNS:
        if column.required and column.name not in seen:
            raise TraceError(f"{where}: column {column.name} ({column.type}: {column.help}) is missing")
    if {"block_ids", "token_ids"} <= seen:
        raise TraceError(f"{where}: two id columns, block_ids and token_ids; a trace has one of them or neither")
    return make_schema(seen)


def make_schema(names: set[str] | frozenset[str]) -> pa.Schema:
    """The version 1 schema of the columns ``names``, in canonical order."""
    return pa.schema(
        [pa.field(column.name, column.type, not column.required) for column in COLUMNS if column.name in names]
    )


def id_column(schema: pa.Schema) -> str | None:
    """The column that identifies the prompt: ``block_ids``, ``token_ids`` or None."""
    return next((name for name in ("block_ids", "token_ids") if name in schema.names), None)


def is_list(kind: pa.DataType) -> bool:
    """True for the list types that a trace column may have in a file."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _castable(have: pa.DataType, column: Column) -> bool:
    want = column.type
    if have.equals(want):
        return True
    if pa.types.is_null(have):
        return not column.required
    if pa.types.is_list(want):
        return is_list(have) and bool(pa.types.is_integer(have.value_type))
    if pa.types.is_string(want):
        return _is_text(have)
    return bool(pa.types.is_integer(have))
