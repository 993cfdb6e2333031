"""Named random streams: every random choice of a run has a seed of its own.

The seed of a stream depends on the run's seed and the stream's name alone, so one part's draws
never shift another's (semantics §11).
"""

from __future__ import annotations

from blake3 import blake3


def stream_seed(seed: int, name: str) -> int:
    """The 64-bit seed of the stream ``name`` of a run with seed ``seed``."""
    return int.from_bytes(blake3(f"kvbench stream\0{seed}\0{name}".encode()).digest(length=8), "little")
