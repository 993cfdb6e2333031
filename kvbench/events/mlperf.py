"""An events table into the I/O log of MLPerf Storage's ``kv_cache_benchmark``."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.atomic import atomic_path, same_file
from kvbench.errors import OutputError, TraceError
from kvbench.results.folding import event_rows, log_manifest
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = ("Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase")
KNOWN_TIERS = {"gpu": 0, "cpu": 1}
STORAGE_TIER = 2
"""Tier-0 is the GPU's memory, Tier-1 the CPU's, and all that is slower Tier-2."""
PHASES = {"demoted": "Evict", "evicted": "Evict", "watermark": "Evict"}
NS_PER_US = 1_000


def export_io_log(
    source: str | Path, output: str | Path, *, block_bytes: int | None = None, force: bool = False
) -> int:
    """Write the reads and writes in the events table ``source``; returns how many there are.

    A block that is stored is a write to its tier; one that moves or is copied is a read of the tier that it
    came from, and a write. Blocks that are dropped, and hits where a block stays in its place, move nothing
    and are not there. ``block_bytes`` is by default what the replay was told.

    Raises TraceError for a file that is no events table, or whose blocks have no size in bytes.
    """
    path = Path(source)
    if same_file(path, output):
        raise OutputError(f"{output} is the log that is read; give another name")
    size = block_bytes if block_bytes is not None else log_manifest(path).get("config", {}).get("block_bytes")
    if size is None:
        raise TraceError(f"{path}: the replay knew no size of a block in bytes; give it with --block-bytes")
    count = 0
    with atomic_path(output, force) as temporary, temporary.open("w", newline="") as file:
        log = csv.writer(file, lineterminator="\n")
        log.writerow(HEADER)
        try:
            for row in event_rows(path):
                moves = list(_moves(row, size))
                log.writerows(moves)
                count += len(moves)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from None
    return count


def _moves(row: dict[str, Any], size: int) -> Iterator[tuple[str, str, int, str, str, str]]:
    """The lines of one event."""
    if row["kind"] not in ("INSERT", "MOVE", "COPY"):
        return
    seconds, rest = divmod(row["time_ns"] // NS_PER_US, NS_PER_S // NS_PER_US)
    time = f"{seconds}.{rest:06d}"
    phase = PHASES.get(row["reason"], "Prefill")
    if row["source_tier"] is not None:
        yield time, "Read", size, _tier(row["source_tier"]), f"{row['key']:016x}", phase
    yield time, "Write", size, _tier(row["tier"]), f"{row['key']:016x}", phase


def _tier(name: str) -> str:
    return f"Tier-{KNOWN_TIERS.get(name, STORAGE_TIER)}"
