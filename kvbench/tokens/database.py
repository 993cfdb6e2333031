"""The contract of token databases, and what all of them share: namespaces by row, tails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.tokens.namespace import Namespace

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.trace.schema import TraceFacts

NAMESPACE_COLUMNS = ("model", "adapter", "tenant")
"""Trace columns that fill fields of the namespace (the tenant its salt)."""


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """The keys of a batch of n requests.

    ``keys``       uint64, contiguous; the keys of all requests, one request after another.
    ``offsets``    int64, n + 1; request i has ``keys[offsets[i]:offsets[i + 1]]``.
    ``cacheable``  int32, n; how many leading blocks of request i may be stored.
    """

    keys: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]
    cacheable: npt.NDArray[np.int32]


class TokenDatabase(ABC):
    """Turns record batches into keys.

    ``facts``    what holds for the whole trace.
    ``columns``  the columns it has.
    ``dense``    True if the keys are dense block ids (0, 1, 2, … in first-seen order).
    """

    def __init__(self, facts: TraceFacts, columns: frozenset[str]) -> None:
        self.facts = facts
        self.columns = columns
        self._roots: dict[tuple[str, ...], bytes] = {}

    @property
    def dense(self) -> bool:
        return False

    @abstractmethod
    def keys(self, batch: pa.RecordBatch, *, keep_tails: bool) -> KeyBatch:
        """The keys of ``batch``; a partial last block counts as cacheable only with ``keep_tails``."""

    def namespace_columns(self) -> list[str]:
        """The columns of this trace that fill namespaces."""
        return [name for name in NAMESPACE_COLUMNS if name in self.columns]

    def namespace_rows(
        self, batch: pa.RecordBatch, extra: tuple[str, ...] = ()
    ) -> tuple[list[bytes], npt.NDArray[np.int64]]:
        """The distinct namespace roots of a batch, and for each row the position of its own.

        ``extra`` names further columns whose values are told apart, as tags.
        """
        names = [*self.namespace_columns(), *extra]
        codes = np.zeros(batch.num_rows, dtype=np.int64)
        values: list[list[str]] = []
        for name in names:
            encoded = batch.column(name).cast("string").fill_null("").dictionary_encode()
            distinct = encoded.dictionary.to_pylist()
            codes = codes * max(len(distinct), 1) + encoded.indices.to_numpy(zero_copy_only=False)
            values.append(distinct)
        present, rows = np.unique(codes, return_inverse=True)
        roots = []
        for code in present.tolist():
            picked = []
            for distinct in reversed(values):
                code, at = divmod(code, max(len(distinct), 1))
                picked.append(distinct[at])
            roots.append(self._root(tuple(names), tuple(reversed(picked))))
        return roots, rows

    def _root(self, names: tuple[str, ...], values: tuple[str, ...]) -> bytes:
        """The root of one combination; empty bytes for the empty namespace."""
        if values not in self._roots:
            given = dict(zip(names, values, strict=True))
            namespace = Namespace(
                model=given.pop("model", ""),
                adapter=given.pop("adapter", ""),
                salt=given.pop("tenant", ""),
                tags=given,
            )
            self._roots[values] = b"" if namespace.is_empty() else namespace.root()
        return self._roots[values]
