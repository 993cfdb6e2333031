"""Fixtures for all tests: the real traces, converted once, and a builder of tiny ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import settings

from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.importer import import_trace
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent

EXAMPLES = os.environ.get("KVBENCH_EXAMPLES")
"""So many examples of each property, where its test does not say; else a hundred."""

if EXAMPLES is not None:
    settings.register_profile(
        "examples", settings.get_profile(settings.get_current_profile_name()), max_examples=int(EXAMPLES)
    )
    settings.load_profile("examples")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces and golden numbers next to the repository; skips where it is absent."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(f"needs the real traces and golden numbers in {path}, which are not part of the repository")
    return path


@pytest.fixture(scope="session")
def mooncake(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``mooncake("conversation")`` or ``mooncake("synthetic")``: that trace as an Arrow file."""
    folder = tmp_path_factory.mktemp("mooncake")

    def convert(name: str) -> Path:
        path = folder / f"{name}.arrow"
        if not path.exists():
            import_trace(shared / f"traces/mooncake/{name}_trace.jsonl.gz", path, format=MooncakeFormat())
        return path

    return convert


@pytest.fixture(scope="session")
def make_trace() -> Callable[..., pa.Table]:
    """``make_trace(rows)``: a trace of these rows of block ids at 10 tokens a block.

    ``partial`` has the tokens that each row's last block lacks; other keywords are columns.
    """

    def make(
        rows: list[list[int]], partial: list[int] | None = None, dense: bool = False, **columns: pa.Array
    ) -> pa.Table:
        lacking = partial or [0] * len(rows)
        tokens = [max(10 * len(row) - less, 1) for row, less in zip(rows, lacking, strict=True)]
        table = {
            "arrival_ns": pa.array(range(len(rows)), pa.int64()),
            "input_tokens": pa.array(tokens, pa.uint32()),
            "block_ids": pa.array(rows, pa.list_(pa.uint64())),
            **columns,
        }
        return pa.table(table).replace_schema_metadata(TraceFacts(block_tokens=10, dense=dense).to_metadata())

    return make
