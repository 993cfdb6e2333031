"""Tables for other tools: Parquet with a manifest, or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from kvbench.atomic import atomic_path
from kvbench.errors import OutputError
from kvbench.results.parquet import write_parquet

if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIXES = (".parquet", ".csv")


def write_table(table: pa.Table, path: str | Path, manifest: Mapping[str, Any], *, force: bool) -> None:
    """Write ``table`` to ``path``, whole or not at all; CSV has no place for the manifest. Raises OutputError for a
    name that ends otherwise."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(f"{path}: the name must end in {' or '.join(SUFFIXES)}")
    if suffix == ".csv":
        with atomic_path(path, force) as temporary:
            pacsv.write_csv(table, temporary)
        return
    with write_parquet([(path, table.schema)], force=force) as (writer,):
        for batch in table.to_batches():
            writer.write(batch)
        writer.finish(dict(manifest))
