"""A file of somebody else's events into an events table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvbench.errors import ConfigError, TraceError
from kvbench.events.captures import CaptureReader
from kvbench.events.dynamo import DynamoReader
from kvbench.events.frames import opened
from kvbench.events.journal import Heard, Journal
from kvbench.events.lmcache import MAGIC, LmcacheReader
from kvbench.plugins import own_version
from kvbench.results.events import EVENTS_SCHEMA
from kvbench.results.parquet import write_parquet

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

ROWS_AT_A_TIME = 65_536
HEAD_BYTES = 64


class Reader(Protocol):
    """Reads one form of event file. ``unknown`` counts what was passed over."""

    unknown: Counter[str]

    def read(self, path: Path) -> Iterator[Heard]: ...


READERS: dict[str, type[Reader]] = {"dynamo": DynamoReader, "lmcache": LmcacheReader, "vllm": CaptureReader}
"""By the name of the form."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was in a file.

    ``messages``  that were taken in; ``repeats`` were dropped, ``lost`` ones left ``gaps`` in the numbers,
                  ``late`` ones filled a gap.
    ``events``    rows written, by kind.
    ``unknown``   fields and events that were passed over, by name.
    """

    format: str
    messages: int
    gaps: int
    lost: int
    late: int
    repeats: int
    restarts: int
    workers: list[str]
    tiers: list[str]
    events: dict[str, int]
    unknown: dict[str, int]


def import_events(
    source: str | Path, output: str | Path, *, format: str | None = None, force: bool = False
) -> ImportReport:
    """Write the events of ``source`` as an events table, a row a block, to ``output``.

    ``format``  ``vllm``, ``lmcache`` or ``dynamo``; guessed from the first bytes if not given.

    Raises ConfigError for an unknown format, TraceError for a file that breaks the rules of its format.
    """
    path = Path(source)
    try:
        name = format if format is not None else guess_format(path)
        reader = make_reader(name)
        journal = Journal()
        with write_parquet([(output, EVENTS_SCHEMA)], force=force) as (writer,):
            for heard in reader.read(path):
                journal.hear(heard)
                if len(journal) >= ROWS_AT_A_TIME:
                    writer.write(journal.take())
            writer.write(journal.take())
            if not journal.messages:
                raise TraceError(f"has no message of format {name}")
            report = _report(name, journal, reader)
            writer.finish(_manifest(path, report, journal, reader))
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    return report


def make_reader(name: str) -> Reader:
    """A reader of the form ``name``."""
    if name not in READERS:
        raise ConfigError(f"no event format is called {name!r}; there are {', '.join(sorted(READERS))}")
    return READERS[name]()


def guess_format(path: Path) -> str:
    """The form of a file, by its first bytes."""
    with opened(path) as file:
        head = bytes(file.read(HEAD_BYTES))
    if not head.strip():
        raise TraceError("is empty")
    if head.lstrip().startswith(b"{"):
        return "dynamo"
    if MAGIC in head and b"magic" in head:
        return "lmcache"
    if 0x92 <= head[4:5].ljust(1)[0] <= 0x95 and head[:1] == b"\0":
        return "vllm"
    raise TraceError("is neither a capture of vLLM's events, nor LMCache's recording, nor Dynamo's JSON lines")


def _report(name: str, journal: Journal, reader: Reader) -> ImportReport:
    return ImportReport(
        format=name,
        messages=journal.messages,
        gaps=journal.gaps,
        lost=journal.lost,
        late=journal.late,
        repeats=journal.repeats,
        restarts=journal.restarts,
        workers=journal.workers,
        tiers=journal.tiers,
        events=dict(journal.events),
        unknown=dict(sorted(reader.unknown.items())),
    )


def _manifest(path: Path, report: ImportReport, journal: Journal, reader: Reader) -> dict[str, Any]:
    imported = {**asdict(report), "file": path.name, "origin_s": journal.origin_s}
    if isinstance(reader, LmcacheReader):
        imported |= {"accesses": reader.accesses, "capacity_bytes": reader.capacities}
    if isinstance(reader, CaptureReader) and len(reader.block_tokens) == 1:
        (imported["block_tokens"],) = reader.block_tokens
    return {
        "kvbench": own_version(),
        "imported": imported,
        "config": {"tiers": [{"name": tier} for tier in report.tiers]},
    }
