"""Sources of text traces, and what is read from them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.text import Lines

Read = Callable[..., list[dict]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """``read(format, *documents)``: the rows that ``format`` reads from a file with a document a line.

    A document that is text or bytes is written as it is; ``log`` collects what is told beside the rows.
    """

    def rows(format: TraceFormat, *documents: object, log: ReadLog | None = None) -> list[dict]:
        path = tmp_path / "source"
        path.write_bytes(b"\n".join(map(as_bytes, documents)))
        batches = list(format.read(Lines(path), log or ReadLog()))
        return pa.Table.from_batches(batches).to_pylist() if batches else []

    return rows


def as_bytes(document: object) -> bytes:
    if isinstance(document, bytes):
        return document
    return (document if isinstance(document, str) else json.dumps(document)).encode()


@pytest.fixture(scope="session")
def lmcache(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the LMCache agent traces, unpacked."""
    return unpacked(shared / "traces/lmcache-agent/lmcache_agent_traces.tar.gz", tmp_path_factory.mktemp("lmcache"))


@pytest.fixture(scope="session")
def spans(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The span files of inference-perf, unpacked."""
    folder = unpacked(shared / "traces/inference-perf/otel_test_traces.tar.gz", tmp_path_factory.mktemp("otel"))
    return sorted(folder.rglob("*.json"))


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder
