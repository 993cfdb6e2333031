"""Which whole sessions or prefix trees of a trace are in a sample: a hash of their names says.

A unit is in the sample if the hash of its name and the seed lies below the share asked for, so the
choice depends on nothing else in the trace and needs no pass over it first. Sampling rows or blocks
one by one would break the leading runs that prefix hits are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from blake3 import blake3

from kvbench.errors import ConfigError
from kvbench.seeds import stream_seed
from kvbench.trace.columns import list_parts, numbers, validity
from kvbench.trace.rows import Interner

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.trace.columns import Bools, Int64s
    from kvbench.trace.reader import Trace
    from kvbench.trace.schema import TraceFacts

    UInt64s = npt.NDArray[np.uint64]

Unit = Literal["session", "tree"]


@dataclass(frozen=True, slots=True)
class UnitChoice:
    """``share`` of the units are kept. A tree is named by the first ``depth`` + 1 blocks of a prompt."""

    share: float
    by: Unit
    depth: int = 0
    seed: int = 0

    def check(self, trace: Trace) -> None:
        """Raise ConfigError for a sample that ``trace`` cannot give."""
        if not 0 < self.share < 1:
            raise ConfigError(f"--sample = {self.share:g} must be above 0 and below 1; leave it out for all rows")
        if self.depth < 0:
            raise ConfigError(f"--sample-depth = {self.depth} must not be negative")
        if self.by == "session":
            if self.depth:
                raise ConfigError("--sample-depth has no effect with --sample-by session")
            if "session_id" not in trace.schema.names:
                raise ConfigError(
                    f"--sample-by session needs a column session_id, which {trace.name} has not; try --sample-by tree"
                )
        elif trace.ids is None:
            raise ConfigError(f"--sample-by tree needs block_ids or token_ids, and {trace.name} has neither")
        elif trace.ids == "token_ids" and trace.facts.block_tokens is None:
            raise ConfigError(f"--sample-by tree needs the block size of {trace.name}; give --block-tokens")


class UnitSample:
    """Keeps the rows of some units of one trace, and counts units."""

    def __init__(self, choice: UnitChoice, facts: TraceFacts) -> None:
        self.choice = choice
        self._facts = facts
        self._salt = np.uint64(stream_seed(choice.seed, "select/sample"))
        self._units = Interner()
        self._kept = Interner()
        self._rows = 0

    @property
    def units(self) -> int:
        """Units met so far."""
        return len(self._units)

    @property
    def kept_units(self) -> int:
        """Units met so far that are in the sample."""
        return len(self._kept)

    def keep(self, batch: pa.RecordBatch) -> Bools:
        """True for the rows of the next batch that are in the sample."""
        rows = np.arange(self._rows, self._rows + batch.num_rows, dtype=np.uint64)
        self._rows += batch.num_rows
        names = session_hashes(batch.column("session_id"), rows, self._salt) if self.choice.by == "session" else None
        if names is None:
            names = self._tree_names(batch, rows)
        self._units.intern(names, np.empty_like(names))
        kept: Bools = mix64(names ^ self._salt) < np.uint64(int(self.choice.share * 2**64))
        chosen = np.ascontiguousarray(names[kept])
        self._kept.intern(chosen, np.empty_like(chosen))
        return kept

    def _tree_names(self, batch: pa.RecordBatch, rows: UInt64s) -> UInt64s:
        """A hash of the leading blocks of each row; a row without any is a tree of its own."""
        if "block_ids" in batch.schema.names:
            parts = list_parts(batch.column("block_ids"))
            names = self._block_names(numbers(parts.values).astype(np.uint64), parts.offsets)
        else:
            parts = list_parts(batch.column("token_ids"))
            names = self._token_names(numbers(parts.values), parts.offsets)
        if self._facts.id_scope == "session" and "session_id" in batch.schema.names:
            names = mix64(names ^ session_hashes(batch.column("session_id"), rows, self._salt))
        return np.where(parts.lengths > 0, names, mix64(rows ^ self._salt))

    def _block_names(self, values: UInt64s, offsets: Int64s) -> UInt64s:
        starts, last = offsets[:-1], np.maximum(offsets[1:] - 1, 0)
        if len(values) == 0:
            return np.zeros(len(starts), np.uint64)
        if self._facts.id_kind == "prefix":
            return values[np.minimum(np.minimum(starts + self.choice.depth, last), len(values) - 1)]
        names = np.zeros(len(starts), np.uint64)
        for at in range(self.choice.depth + 1):
            there = starts + at <= last
            names[there] = mix64(names[there] * np.uint64(3) ^ values[(starts + at)[there]])
        return names

    def _token_names(self, values: npt.NDArray[Any], offsets: Int64s) -> UInt64s:
        span = (self._facts.block_tokens or 1) * (self.choice.depth + 1)
        starts, ends = offsets[:-1], np.minimum(offsets[1:], offsets[:-1] + span)
        little = values.astype("<u4")
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return _digests([little[start:end].tobytes() for start, end in pairs])


def session_hashes(column: pa.Array, rows: UInt64s, salt: np.uint64) -> UInt64s:
    """A hash of each row's session; a row without one is a session of its own, named by its number in ``rows``."""
    encoded = column.dictionary_encode()
    hashes = _digests([name.encode() for name in encoded.dictionary.to_pylist()] or [b""])
    known = validity(encoded)
    at: npt.NDArray[Any] = encoded.indices.fill_null(0).to_numpy()
    return np.where(known, hashes[at], mix64(rows ^ salt))


def _digests(texts: list[bytes]) -> UInt64s:
    return np.array([int.from_bytes(blake3(text).digest(length=8), "little") for text in texts], np.uint64)


def mix64(values: UInt64s) -> UInt64s:
    """The finaliser of SplitMix64, as in hashing.pxd: a bijection of 64-bit words."""
    mixed = values ^ (values >> np.uint64(30))
    mixed = mixed * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
