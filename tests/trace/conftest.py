"""Builders of small traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.trace.schema import COLUMN_BY_NAME, TraceFacts, make_schema

MakeTable = Callable[..., pa.Table]


@pytest.fixture(scope="session")
def make_table() -> MakeTable:
    """``make_table(facts, **columns)``: a trace of three good rows at 512 tokens a block, columns replaced by name.

    A column given as None is left out; one given as an Arrow array keeps its type.
    """

    def make(facts: TraceFacts | None = None, **columns: object) -> pa.Table:
        values: dict[str, object] = {
            "arrival_ns": [0, 5, 5],
            "input_tokens": [512, 513, 1024],
            "output_tokens": [10, None, 0],
            "block_ids": [[0], [0, 1], [0, 2]],
        }
        values.update(columns)
        values = {name: value for name, value in values.items() if value is not None}
        arrays = {
            name: value if isinstance(value, (pa.Array, pa.ChunkedArray)) else pa.array(value, _type_of(name))
            for name, value in values.items()
        }
        metadata = (facts or TraceFacts(block_tokens=512)).to_metadata()
        return pa.table(arrays).replace_schema_metadata(metadata)

    return make


def _type_of(name: str) -> pa.DataType | None:
    column = COLUMN_BY_NAME.get(name)
    return column.type if column else None


@pytest.fixture(scope="session")
def save() -> Callable[[pa.Table, Path, int], Path]:
    """Write a table, in chunks of some rows, as what the path's suffix says: .arrow, .arrows (stream) or .parquet."""

    def write(table: pa.Table, path: Path, chunk_rows: int = 1000) -> Path:
        batches = table.to_batches(max_chunksize=chunk_rows)
        if path.suffix == ".parquet":
            with pq.ParquetWriter(path, table.schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            return path
        opened = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as file, opened(file, table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return path

    return write


@pytest.fixture(scope="session")
def empty_schema() -> pa.Schema:
    return make_schema({"arrival_ns", "input_tokens"})


@pytest.fixture(scope="session")
def sample_path() -> Path:
    """The shipped sample trace."""
    return Path(__file__).parents[2] / "traces" / "chat.arrow"
