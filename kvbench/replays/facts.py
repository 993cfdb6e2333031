"""Facts of requests as the numbers that policies look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ConfigError
from kvbench.replays.order import FACTS
from kvbench.trace.columns import numbers, validity

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

UNKNOWN = -1
TEXT_FACTS = ("session_id", "tenant", "type")


class RequestFacts:
    """Makes the fact columns of batches: only those in ``columns``, all others are UNKNOWN.

    Text is numbered from 0 in first-seen order over the whole trace, so memory grows with the
    number of different sessions, tenants or types, where a policy asks for them. ``tenants`` have the first numbers.
    """

    def __init__(self, columns: tuple[str, ...], tenants: tuple[str, ...] = ()) -> None:
        self._columns = columns
        self._codes: dict[str, dict[str, int]] = {name: {} for name in TEXT_FACTS}
        self._codes["tenant"] = {name: number for number, name in enumerate(tenants)}
        self._unmet = dict.fromkeys(tenants)

    def check_tenants(self) -> None:
        """At the end of a pass: raise ConfigError for one of ``tenants`` that no request was of."""
        for name in self._unmet:
            raise ConfigError(f"quota of {name}: no request of the trace is of this tenant; its quota has no effect")

    def of(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int32] | None]:
        """Arrivals, and the table requests × len(FACTS); None for what nobody asked for."""
        time_ns = numbers(batch.column("arrival_ns")) if "arrival_ns" in self._columns else None
        asked = [name for name in FACTS if name in self._columns]
        if not asked:
            return time_ns, None
        facts = np.full((batch.num_rows, len(FACTS)), UNKNOWN, dtype=np.int32)
        for name in asked:
            column = batch.column(name)
            values = self._coded(name, column) if name in TEXT_FACTS else numbers(column)
            known = validity(column)
            facts[known, FACTS.index(name)] = values[known]
        return time_ns, facts

    def _coded(self, name: str, column: pa.Array) -> npt.NDArray[np.int64]:
        codes = self._codes[name]
        encoded = column.fill_null("").dictionary_encode()
        if name == "tenant" and self._unmet:
            self._unmet = {tenant: None for tenant in self._unmet if tenant not in encoded.dictionary.to_pylist()}
        # Numbered in the order of the rows, so that the cut of batches changes no number.
        mine = [codes.setdefault(text, len(codes)) for text in encoded.dictionary.to_pylist()]
        return np.asarray(np.array(mine, dtype=np.int64)[numbers(encoded.indices)])
