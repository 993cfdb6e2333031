"""Parquet files that appear whole or not at all, with equal bytes for equal rows; columns have their units."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.atomic import atomic_paths, check_writable
from kvbench.errors import OutputError, reason
from kvbench.results.columnunits import UNITS_KEY, units_of, with_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

METADATA_KEY = "kvbench"
"""Key of a result file's metadata; its value is the manifest as JSON."""

ROW_GROUP_ROWS = 65_536

OTHER_SUFFIXES = (".arrow", ".csv", ".feather", ".json", ".jsonl", ".tsv", ".txt", ".xlsx")
"""Names that promise another form; what else a name ends in is nobody's form."""


class TableWriter:
    """Streams record batches into row groups of fixed size, whatever sizes the batches have."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._pending.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP_ROWS:
            table = pa.Table.from_batches(self._pending, self._schema)
            whole = self._rows - self._rows % ROW_GROUP_ROWS
            self._writer.write_table(table.slice(0, whole), row_group_size=ROW_GROUP_ROWS)
            self._pending = table.slice(whole).to_batches()
            self._rows -= whole

    def finish(self, manifest: dict[str, Any]) -> None:
        """Write what is left, the manifest and the units."""
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._pending, self._schema), row_group_size=ROW_GROUP_ROWS)
        texts = {METADATA_KEY: manifest, UNITS_KEY: units_of(self._schema)}
        self._writer.add_key_value_metadata(
            {key: msgspec.json.encode(value, order="sorted").decode() for key, value in texts.items()}
        )


@contextmanager
def write_parquet(tables: Sequence[tuple[str | Path, pa.Schema]], *, force: bool) -> Iterator[list[TableWriter]]:
    """A writer for each (path, schema); the files take their names when the block ends well and all are whole."""
    for path, _ in tables:
        _check_suffix(path)
    with atomic_paths([path for path, _ in tables], force) as temporaries, ExitStack() as stack:
        yield [
            stack.enter_context(_writer(path, temporary, schema))
            for (path, schema), temporary in zip(tables, temporaries, strict=True)
        ]


def check_parquet(path: str | Path, *, force: bool) -> None:
    """Raise the OutputError that :func:`write_parquet` would raise for ``path``: before the work, not after it."""
    _check_suffix(path)
    check_writable(path, force)


def _check_suffix(path: str | Path) -> None:
    suffix = Path(path).suffix
    if suffix.lower() in OTHER_SUFFIXES:
        raise OutputError(f"{path}: is written as Parquet; give it a name in .parquet instead of {suffix}")


@contextmanager
def _writer(path: str | Path, temporary: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    schema = with_units(schema)
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            yield TableWriter(writer, schema)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {reason(error)}") from error


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of a result file. Raises OutputError when it has none."""
    metadata = pq.read_metadata(path).metadata or {}
    if METADATA_KEY.encode() not in metadata:
        raise OutputError(f"{path} is not a result of kvbench: its metadata has no key {METADATA_KEY!r}")
    manifest: dict[str, Any] = msgspec.json.decode(metadata[METADATA_KEY.encode()])
    return manifest
