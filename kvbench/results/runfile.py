"""Runs to compare, from what replays wrote: a ``requests`` file, or the document of ``--json``."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.errors import OutputError, reason
from kvbench.results.fromrows import summary_of_rows
from kvbench.results.parquet import read_manifest
from kvbench.results.repeats import leaves
from kvbench.results.result import RESULT_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

PARQUET_MAGIC = b"PAR1"
REQUESTS_COLUMNS = ("request", "worker", "input_tokens", "hit_blocks")
"""What tells a ``requests`` file from others that a replay writes."""

NEEDED = ("kvbench", "config", "trace")
"""Of a manifest."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was read.

    ``name``      of its file.
    ``manifest``  versions, configuration and trace.
    ``figures``   its numbers by path in the summary: ``rates.token``, ``tiers.cpu.hit_blocks``, …
    ``texts``     what the summary says in words, such as ``timed.verdict.state``.
    ``rows``      its ``requests`` file, whose rows the figures are worked out of; None: it is a document.
    ``summary``   what the figures were taken from; empty where they are means of several seeds.
    """

    name: str
    manifest: dict[str, Any]
    figures: dict[str, float]
    texts: dict[str, str]
    rows: Path | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of the rows of the trace."""
        digest: str = self.manifest["trace"]["digest"]
        return digest


def read_run(path: str | Path) -> Run:
    """The run of ``path``. Raises OutputError for what is neither a ``requests`` file nor the document of one replay
    or of one under several seeds, whose figures are then the means."""
    path = Path(path)
    with reading(path):
        with path.open("rb") as file:
            is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        return _of_rows(path) if is_parquet else _of_document(path)


def read_requests(path: str | Path) -> tuple[pa.Table, dict[str, Any]]:
    """The rows of a ``requests`` file, and its manifest. Raises OutputError for what is none."""
    path = Path(path)
    with reading(path):
        return pq.read_table(path), _requests_manifest(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around what reads ``path``: that it cannot be read, or is damaged, becomes an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {reason(error)}") from None
    except pa.ArrowException as error:
        raise OutputError(f"{path} is not a Parquet file that can be read: {error}") from None


def _requests_manifest(path: Path) -> dict[str, Any]:
    manifest = read_manifest(path)
    _check(path, manifest)
    lacking = [name for name in REQUESTS_COLUMNS if name not in pq.read_schema(path).names]
    if lacking:
        raise OutputError(f"{path} is no table of requests: it has no column {lacking[0]}; give what -o wrote")
    return manifest


def _of_rows(path: Path) -> Run:
    manifest = _requests_manifest(path)
    return _run(path, manifest, summary_of_rows(path, manifest), path)


def _of_document(path: Path) -> Run:
    try:
        document = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        raise OutputError(
            f"{path} is neither a Parquet file nor JSON; give what kvbench replay -o or --json wrote"
        ) from None
    if not isinstance(document, dict):
        raise OutputError(f"{path} is not what kvbench replay --json prints: it is no object")
    _check(path, document)
    if "cells" in document:
        raise OutputError(
            f"{path} has {len(document['cells'])} runs, of several policies, routers or capacities; give a file a run"
        )
    manifest = {key: value for key, value in document.items() if key not in ("summary", "summaries", "figures")}
    if "figures" in document:
        figures = {name: figure["mean"] for name, figure in document["figures"].items()}
        return Run(str(path), manifest, figures, {})
    if "summary" not in document:
        raise OutputError(f"{path} is not what kvbench replay --json prints: it has no summary")
    return _run(path, manifest, document["summary"], None)


def _check(path: Path, manifest: dict[str, Any]) -> None:
    lacking = [name for name in NEEDED if name not in manifest]
    if lacking:
        raise OutputError(f"{path} is not the result of a replay: it does not say {lacking[0]}")
    if manifest.get("version") != RESULT_VERSION:
        raise OutputError(
            f"{path} has version {manifest.get('version')} of the result schema (kvbench {manifest['kvbench']}); "
            f"this kvbench reads version {RESULT_VERSION}: replay it again"
        )


def _run(path: Path, manifest: dict[str, Any], summary: dict[str, Any], rows: Path | None) -> Run:
    figures: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name, value in leaves(summary):
        if isinstance(value, str):
            texts[name] = value
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            figures[name] = value
    return Run(str(path), manifest, figures, texts, rows, summary)
