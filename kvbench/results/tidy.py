"""Tables for other tools: Parquet with a manifest, or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from kvbench.atomic import atomic_path, check_writable
from kvbench.errors import OutputError
from kvbench.results.parquet import write_parquet

if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIXES = (".parquet", ".csv")


def check_table(path: str | Path, *, force: bool) -> None:
    """Raise the OutputError that :func:`write_table` would raise for ``path``: before the work, not after it."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(f"{path}: the name must end in {' or '.join(SUFFIXES)}")
    check_writable(path, force)


def write_table(table: pa.Table, path: str | Path, manifest: Mapping[str, Any], *, force: bool) -> None:
    """Write ``table`` to ``path``, whole or not at all; CSV has no place for the manifest. Raises OutputError for a
    name that ends otherwise."""
    check_table(path, force=force)
    if Path(path).suffix.lower() == ".csv":
        with atomic_path(path, force) as temporary:
            pacsv.write_csv(table, temporary)
        return
    with write_parquet([(path, table.schema)], force=force) as (writer,):
        for batch in table.to_batches():
            writer.write(batch)
        writer.finish(dict(manifest))
