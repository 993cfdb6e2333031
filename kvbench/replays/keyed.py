"""A trace with its keys: what all replays of it share, decoded once for each pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.replays.facts import RequestFacts
from kvbench.replays.outputs import with_outputs
from kvbench.tokens import KeyBatch
from kvbench.trace.columns import numbers
from kvbench.trace.readahead import read_ahead
from kvbench.trace.recut import joined
from kvbench.trace.rows import Interner

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from kvbench.replays.parts import ChosenPart
    from kvbench.tokens import TokenDatabase
    from kvbench.trace.reader import Trace


@dataclass(frozen=True, slots=True)
class Keyed:
    """One batch: its rows, their keys, and the facts that policies asked for (see
    :class:`kvbench.replays.facts.RequestFacts`)."""

    batch: pa.RecordBatch
    keys: KeyBatch
    time_ns: npt.NDArray[np.int64] | None
    facts: npt.NDArray[np.int32] | None

    def take(self, rows: npt.NDArray[np.int64]) -> Keyed:
        """These rows, in this order."""
        keys = self.keys
        sizes = np.diff(keys.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        at = np.repeat(keys.offsets[:-1][rows] - offsets[:-1], sizes) + np.arange(offsets[-1])
        taken = KeyBatch(
            keys.keys[at],
            offsets,
            keys.cacheable[rows],
            None if keys.outputs is None else keys.outputs[rows],
            None if keys.limits is None else keys.limits[rows],
        )
        return Keyed(
            self.batch.take(pa.array(rows)),
            taken,
            None if self.time_ns is None else self.time_ns[rows],
            None if self.facts is None else self.facts[rows],
        )

    @staticmethod
    def join(items: Sequence[Keyed]) -> Keyed:
        """The rows of all ``items``, of which there is one at least, one after another."""
        if len(items) == 1:
            return items[0]
        sizes = [np.diff(item.keys.offsets) for item in items]
        keys = KeyBatch(
            np.concatenate([item.keys.keys for item in items]),
            np.concatenate([[0], np.cumsum(np.concatenate(sizes), dtype=np.int64)]),
            np.concatenate([item.keys.cacheable for item in items]),
            _concatenated([item.keys.outputs for item in items]),
            _concatenated([item.keys.limits for item in items]),
        )
        return Keyed(
            joined([item.batch for item in items]),
            keys,
            _concatenated([item.time_ns for item in items]),
            _concatenated([item.facts for item in items]),
        )


def _concatenated(parts: Sequence[npt.NDArray[Any] | None]) -> npt.NDArray[Any] | None:
    """All parts of one array; None where there is no such array, which is so for all parts alike."""
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there else None


class KeyedTrace:
    """``trace`` through a token database.

    ``tokens``      the token database; None for a trace without ids.
    ``keep_tails``  partial last blocks are cacheable.
    ``columns``     columns that a policy looks at.
    ``store_output``  the blocks that answers fill are stored, too.
    ``recompute``     what of a fully cached prompt is computed again: ``none``, a ``token`` or a ``block``.
    ``shared_blocks``  leading blocks of each prompt that tenants share.
    ``tenants``     names of tenants that have the first numbers, in this order.
    """

    def __init__(
        self,
        trace: Trace,
        tokens: ChosenPart | None,
        *,
        keep_tails: bool,
        columns: tuple[str, ...] = (),
        tenants: tuple[str, ...] = (),
        store_output: bool = False,
        recompute: str = "none",
        shared_blocks: int = 0,
    ) -> None:
        self.trace = trace
        self.keep_tails = keep_tails
        self._tokens = tokens
        self.database = self._make_database()
        self._columns = columns
        self._tenants = tenants
        self.store_output = store_output
        self.recompute = recompute
        self.shared_blocks = shared_blocks

    @property
    def dense(self) -> bool:
        """Whether the keys are dense block ids."""
        return self.database is not None and self.database.dense

    def batches(self) -> Generator[Keyed, None, None]:
        """One pass over the whole trace."""
        facts = RequestFacts(self._columns, self._tenants)
        # A database may count what it meets, and each pass must give the same keys.
        database = self._make_database()
        common = self._make_database(without=("tenant",)) if self.shared_blocks else None
        for batch in read_ahead(self.trace.batches()):
            time_ns, table = facts.of(batch)
            keys = self._keys(database, batch)
            if common is not None:
                keys = self._shared(keys, self._keys(common, batch))
            yield Keyed(batch, self._limited(keys, batch), time_ns, table)
        facts.check_tenants()

    def numbering(self) -> Numbering:
        """Gives each key a dense id, the same ones in each pass."""
        return Numbering(None if self.dense else Interner())

    def _shared(self, keys: KeyBatch, common: KeyBatch) -> KeyBatch:
        """The leading ``shared_blocks`` of each prompt are keyed alike for all tenants."""
        sizes = np.diff(keys.offsets)
        at = np.arange(len(keys.keys)) - np.repeat(keys.offsets[:-1], sizes)
        return replace(keys, keys=np.where(at < self.shared_blocks, common.keys, keys.keys))

    def _limited(self, keys: KeyBatch, batch: pa.RecordBatch) -> KeyBatch:
        """With ``recompute = block`` the last block of a fully cached prompt of whole blocks is no hit."""
        block_tokens = self.trace.facts.block_tokens
        if self.recompute != "block" or block_tokens is None:
            return keys
        tokens = numbers(batch.column("input_tokens")).astype(np.int64)
        whole = (tokens % block_tokens == 0) & (keys.cacheable == tokens // block_tokens) & (keys.cacheable > 0)
        return replace(keys, limits=(keys.cacheable - whole).astype(np.int32))

    def _make_database(self, without: tuple[str, ...] = ()) -> TokenDatabase | None:
        if self._tokens is None:
            return None
        try:
            database: TokenDatabase = self._tokens.make(
                self.trace.facts, frozenset(self.trace.schema.names) - set(without)
            )
        except TraceError as error:
            raise TraceError(f"{self.trace.name}: {error}") from None
        return database

    def _keys(self, database: TokenDatabase | None, batch: pa.RecordBatch) -> KeyBatch:
        if database is not None and self.store_output:
            return with_outputs(database, batch)
        if database is not None:
            return database.keys(batch, keep_tails=self.keep_tails)
        rows = batch.num_rows
        return KeyBatch(np.zeros(0, np.uint64), np.zeros(rows + 1, np.int64), np.zeros(rows, np.int32))


class Numbering:
    """Dense ids of one pass: first-seen order; the keys themselves where they are dense already."""

    def __init__(self, interner: Interner | None) -> None:
        self._interner = interner

    def ids(self, keys: KeyBatch) -> npt.NDArray[np.uint64]:
        """The dense id of each key of a batch."""
        if self._interner is None:
            return keys.keys
        ids = np.empty_like(keys.keys)
        self._interner.intern(keys.keys, ids)
        return ids
