"""Opens a trace in any of its forms and gives it out as checked batches."""

from __future__ import annotations

import dataclasses
from typing import IO, TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from kvbench.errors import ConfigError, TraceError
from kvbench.trace.blocksize import check_block_tokens
from kvbench.trace.conform import conform
from kvbench.trace.digest import TraceDigest
from kvbench.trace.recut import Recutter, gathered, split
from kvbench.trace.rejects import Rejected
from kvbench.trace.schema import ID_KINDS, ID_SCOPES, TAIL_RULES, TraceFacts, id_column, normalise_schema
from kvbench.trace.sources import Source, open_source, reading
from kvbench.trace.validate import BatchValidator, OnError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from kvbench.trace.sources import TraceBytes

    TraceSource: TypeAlias = str | Path | IO[bytes] | TraceBytes | pa.Table | pa.RecordBatchReader

IdColumn = Literal["block_ids", "token_ids"]


class _Held(NamedTuple):
    """What a whole pass gave, where none of its rows was rejected."""

    batches: list[pa.RecordBatch]
    digest: str
    rows: int


class Trace:
    """An opened trace; made by :func:`open_trace`.

    ``name``        the file, for messages (``-`` for standard input).
    ``facts``       what holds for all rows, overrides applied.
    ``schema``      version 1 schema of the batches.
    ``ids``         the column that identifies the prompt: ``block_ids``, ``token_ids`` or None.
    ``rewindable``  whether ``batches`` can be called more than once.
    ``rejected``    rows left out by the latest pass (``on_error="skip"``).
    ``digest``      of the rows of the latest whole pass, as ``blake3:…``; ``kept_rows`` how many they are. None before.
    """

    def __init__(self, source: Source, name: str, facts: TraceFacts, on_error: OnError, hold_bytes: int = 0) -> None:
        self.name = name
        self.facts = facts
        with reading(name):
            self.schema: pa.Schema = normalise_schema(source.schema, name)
        self.ids = cast("IdColumn | None", id_column(self.schema))
        self.rewindable = source.rewindable
        self.rejected = Rejected()
        self.digest: str | None = None
        self.kept_rows: int | None = None
        self._source = source
        self._on_error: OnError = on_error
        self._used = False
        self._hold_bytes = hold_bytes
        self._held: _Held | None = None

    @property
    def rows(self) -> int | None:
        """The number of rows in the file, where it is known without reading them."""
        return self._source.rows()

    def need_ids(self) -> None:
        """Raise TraceError where no column identifies prompts."""
        if self.ids is None:
            raise TraceError(
                f"{self.name} has neither block_ids nor token_ids, so nothing is known of its reuse; import a trace "
                "with hash ids, token ids or texts"
            )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order, as version 1 batches that are cut by content (see :mod:`kvbench.trace.recut`).

        Raises TraceError for the first row that breaks a rule, unless bad rows are skipped, and
        for a second pass over a source that can be read only once.
        """
        if self._used and not self.rewindable:
            raise TraceError(f"{self.name}: can be read only once; save it to a file to read it again")
        self._used = True
        self.digest = self.kept_rows = None
        self.rejected = Rejected()
        return self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._held is not None:
            yield from self._held.batches
            self.digest, self.kept_rows = self._held.digest, self._held.rows
            return
        digest = TraceDigest(self.schema, self.facts)
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in self._cut():
            digest.update(batch)
            held_bytes += batch.nbytes
            if held_bytes <= self._hold_bytes:
                held.append(batch)
            yield batch
        self.digest, self.kept_rows = digest.value(), digest.rows
        if self.rewindable and held_bytes <= self._hold_bytes and not self.rejected.count:
            self._held = _Held(held, self.digest, self.kept_rows)

    def _cut(self) -> Iterator[pa.RecordBatch]:
        """The checked rows in batches that are cut by content."""
        cutter = Recutter()
        for piece in self._checked():
            yield from cutter.push(piece)
        yield from cutter.flush()

    def _sound(self) -> Iterator[pa.RecordBatch]:
        """The batches of the source, none of them damaged."""
        for raw in self._source.batches():
            with reading(self.name):
                # Buffers of a damaged file may point anywhere; per row, not per id, this is cheap.
                raw.validate(full=True)
            yield raw

    def _checked(self) -> Iterator[pa.RecordBatch]:
        validator = BatchValidator(self.facts, self.name, self._on_error, rejected=self.rejected)
        for raw in gathered(self._sound()):
            for piece in split(raw):
                batch, failures = conform(piece, self.schema, self.name)
                bad = validator.check(batch, failures)
                yield batch if bad is None else batch.filter(~bad)


def open_trace(
    source: TraceSource,
    *,
    block_tokens: int | None = None,
    tail_rule: str | None = None,
    id_kind: str | None = None,
    id_scope: str | None = None,
    on_error: OnError = "fail",
    hold_bytes: int = 0,
) -> Trace:
    """Open a trace; nothing but its schema is read yet.

    ``source``        path of an Arrow IPC file, Arrow IPC stream or Parquet file; ``-`` for a stream on
                      standard input; an open binary file with a stream; a file in memory (:class:`TraceBytes`); a
                      pyarrow Table or RecordBatchReader.
    ``block_tokens``, ``tail_rule``, ``id_kind``, ``id_scope``  instead of what the file's metadata says.
    ``on_error``      ``fail``: a bad row raises; ``skip``: it is left out and counted.

    ``hold_bytes``    keep the checked rows of a whole pass in memory for later ones, if they are no more than this.

    Raises TraceError when the source cannot be read or is no trace.
    """
    check_block_tokens(block_tokens)
    for setting, value, choices in (
        ("tail_rule", tail_rule, TAIL_RULES),
        ("id_kind", id_kind, ID_KINDS),
        ("id_scope", id_scope, ID_SCOPES),
    ):
        if value is not None and value not in choices:
            raise ConfigError(f"{setting} = {value!r} is not one of {', '.join(choices)}")
    if on_error not in ("fail", "skip"):
        raise ConfigError(f"on_error = {on_error!r} is not one of fail, skip")
    name, opened = open_source(source)
    facts = TraceFacts.from_metadata(opened.schema.metadata, name)
    facts = dataclasses.replace(
        facts,
        block_tokens=facts.block_tokens if block_tokens is None else block_tokens,
        tail_rule=facts.tail_rule if tail_rule is None else tail_rule,
        id_kind=facts.id_kind if id_kind is None else id_kind,
        id_scope=facts.id_scope if id_scope is None else id_scope,
    )
    return Trace(opened, name, facts, on_error, hold_bytes)
