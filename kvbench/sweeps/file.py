"""The table of a sweep as a file, written and read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from kvbench.errors import OutputError, reason
from kvbench.results.parquet import read_manifest
from kvbench.results.tidy import write_table
from kvbench.sweeps.journal import CellRecord
from kvbench.sweeps.paths import get_setting
from kvbench.sweeps.result import SweepCell, SweepResult

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD_COLUMNS = ("config_hash", "method", "status", "error", "summary")


def write_sweep(result: SweepResult, path: str) -> None:
    """Write the table of ``result`` to ``path`` (.parquet or .csv), in place of what is there."""
    write_table(result.table(), path, result.manifest, force=True)


def read_sweep(path: str | Path) -> SweepResult:
    """The sweep of a .parquet file. Raises OutputError for another file, and for one that cannot be read."""
    try:
        manifest = read_manifest(path)
        if "axes" not in manifest:
            raise OutputError(f"{path} is no sweep; kvbench sweep -o writes one")
        table = pq.read_table(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {reason(error)}") from None
    except pa.ArrowException as error:
        raise OutputError(f"{path} is not a Parquet file that can be read: {error}") from None
    return SweepResult(manifest, [_cell(row, list(manifest["axes"])) for row in table.to_pylist()])


def known_cells(path: str) -> list[CellRecord]:
    """The cells of a file that a sweep wrote, CSV or Parquet. Raises OutputError for any other."""
    try:
        if Path(path).suffix.lower() == ".csv":
            types = dict.fromkeys(RECORD_COLUMNS, pa.string())
            options = pacsv.ConvertOptions(include_columns=RECORD_COLUMNS, column_types=types, strings_can_be_null=True)
            # The longest line must fit a block.
            table = pacsv.read_csv(path, pacsv.ReadOptions(block_size=2**30), convert_options=options)
        else:
            table = pq.read_table(path, columns=list(RECORD_COLUMNS))
        return list(_records(table))
    except (pa.ArrowException, KeyError, msgspec.MsgspecError, OSError):
        raise OutputError(f"{path} exists and is no sweep; give --force to replace it, or another name") from None


def _records(table: pa.Table) -> Iterator[CellRecord]:
    for row in table.to_pylist():
        yield msgspec.convert({**row, "summary": _decoded(row["summary"])}, CellRecord)


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _cell(row: dict[str, Any], paths: list[str]) -> SweepCell:
    settings = _decoded(row["settings"])
    return SweepCell(
        number=row["cell"],
        axes={path: get_setting(settings, path) for path in paths},
        settings=settings,
        **{name: row[name] for name in ("config_hash", "status", "error", "method")},
        summary=_decoded(row["summary"]),
    )
