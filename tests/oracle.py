"""libCacheSim 0.3.5 as an oracle for block-by-block counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


def write_oracle_file(ids: np.ndarray, file: Path) -> Path:
    """The stream in libCacheSim's binary format, one object of size 1 a block."""
    records = np.zeros(len(ids), dtype=RECORD)
    records["id"], records["size"], records["next"] = ids, 1, -1
    records.tofile(file)
    return file


def oracle_hits(name: str, file: Path, capacity: int, **params: Any) -> int:
    """Hits of the policy of this name; skips where libcachesim is not installed."""
    peer = pytest.importorskip("libcachesim")
    sizes = peer.ReaderInitParam(ignore_obj_size=True)
    reader = peer.TraceReader(str(file), peer.TraceType.ORACLE_GENERAL_TRACE, sizes)
    miss_ratio, _ = getattr(peer, name)(capacity, **params).process_trace(reader)
    return round((1 - miss_ratio) * file.stat().st_size / RECORD.itemsize)
