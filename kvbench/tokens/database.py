"""The contract of token databases, and what all of them share: namespaces by row, tails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.tokens.namespace import Namespace
from kvbench.trace.columns import validity

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.trace.schema import TraceFacts

    Int64s = npt.NDArray[np.int64]

NAMESPACE_COLUMNS = ("model", "adapter", "tenant")
"""Trace columns that fill fields of the namespace (the tenant its salt)."""

SESSION = "session_id"
LONE_ROW = "row without session"
"""The tags of ids that mean something in their session only."""


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """The keys of a batch of n requests.

    ``keys``       uint64, contiguous; the keys of all requests, one request after another.
    ``offsets``    int64, n + 1; request i has ``keys[offsets[i]:offsets[i + 1]]``.
    ``cacheable``  int32, n; how many leading blocks of request i may be stored.
    ``outputs``    int32, n; how many blocks that the answer fills follow those; None: none.
    ``limits``     int32, n; how many leading blocks may hit, where the last one is computed again; None: all.
    """

    keys: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]
    cacheable: npt.NDArray[np.int32]
    outputs: npt.NDArray[np.int32] | None = None
    limits: npt.NDArray[np.int32] | None = None


class TokenDatabase(ABC):
    """Turns the record batches of one pass over a trace, in order, into keys.

    ``facts``    what holds for the whole trace.
    ``columns``  the columns it has.
    ``dense``    True if the keys are dense block ids (0, 1, 2, … in first-seen order).
    """

    def __init__(self, facts: TraceFacts, columns: frozenset[str]) -> None:
        self.facts = facts
        self.columns = columns
        self._roots: dict[tuple[str, ...], bytes] = {}
        self._lone_count = 0

    @property
    def dense(self) -> bool:
        return False

    @abstractmethod
    def keys(self, batch: pa.RecordBatch, *, keep_tails: bool) -> KeyBatch:
        """The keys of ``batch``; a partial last block counts as cacheable only with ``keep_tails``."""

    def namespace_columns(self) -> list[str]:
        """The columns of this trace that fill namespaces."""
        return [name for name in NAMESPACE_COLUMNS if name in self.columns]

    def namespace_rows(self, batch: pa.RecordBatch, *, by_session: bool = False) -> tuple[list[bytes], Int64s]:
        """The distinct namespace roots of a batch, and for each row the position of its own.

        ``by_session`` tells sessions apart, too; a row without a session is one of its own.
        """
        names = self.namespace_columns()
        columns = [batch.column(name).cast("string").fill_null("") for name in names]
        if by_session:
            names += [SESSION, LONE_ROW]
            columns += [batch.column(SESSION).cast("string").fill_null(""), self._lone_rows(batch.column(SESSION))]
        rows = np.zeros(batch.num_rows, dtype=np.int64)
        examples = np.zeros(min(1, batch.num_rows), dtype=np.int64)
        for column in columns:
            encoded = column.dictionary_encode()
            # Below rows × rows, whatever the number of columns.
            codes = rows * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
            _, examples, rows = np.unique(codes, return_index=True, return_inverse=True)
        picked = [column.take(examples).to_pylist() for column in columns]
        found = list(zip(*picked, strict=True)) if columns else [()] * len(examples)
        # Those of the batch before are at hand, and no more: sessions come and go.
        known, self._roots = self._roots, {}
        for values in found:
            self._roots[values] = known[values] if values in known else _root(dict(zip(names, values, strict=True)))
        return [self._roots[values] for values in found], rows

    def _lone_rows(self, sessions: pa.Array) -> pa.Array:
        """A number for each row without a session, counted over the whole pass; empty for the others."""
        lone = np.flatnonzero(~validity(sessions))
        texts = [""] * len(sessions)
        for row in lone.tolist():
            self._lone_count += 1
            texts[row] = str(self._lone_count)
        return pa.array(texts, pa.string())


def _root(given: dict[str, str]) -> bytes:
    """The root of one combination; empty bytes for the empty namespace."""
    namespace = Namespace(
        model=given.pop("model", ""),
        adapter=given.pop("adapter", ""),
        salt=given.pop("tenant", ""),
        tags=given,
    )
    return b"" if namespace.is_empty() else namespace.root()
