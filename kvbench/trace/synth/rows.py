"""What workloads that write row by row have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from kvbench.trace.schema import TraceFacts, make_schema
from kvbench.trace.synth import Workload, stream
from kvbench.trace.synth.arrivals import start_times_ns
from kvbench.trace.synth.texts import Texts

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

ROWS_PER_BATCH = 1024
IDS_PER_BATCH = 2**20
COLUMNS = ("arrival_ns", "input_tokens", "output_tokens", "request_id")


class RowParams(Protocol):
    """What :class:`RowWorkload` reads of parameters; the rest is its subclass's."""

    arrivals: str
    rate: float | None
    cv: float | None
    block_tokens: int
    ids: str


P = TypeVar("P", bound=Any)


class RowWorkload(Workload, Generic[P]):
    """A workload that gives its rows one by one, as dictionaries by column.

    ``name`` of the workload, ``columns`` beside the usual ones, ``default_rate`` of starts a second, and
    ``advice`` on what to lower where ``goes_on`` for too long.
    """

    name: str
    columns: tuple[str, ...] = ()
    default_rate: float = 1.0
    goes_on: str = "requests"
    advice: str = "raise rate, or lower requests"

    def __init__(self, seed: int, params: P) -> None:
        self._seed = seed
        self._params = params
        self._column = f"{params.ids}_ids"
        self._schema = make_schema({*COLUMNS, *self.columns, self._column})

    @property
    def facts(self) -> TraceFacts:
        return TraceFacts(
            block_tokens=self._params.block_tokens,
            dense=self._params.ids == "block",
            source_name=f"{self.name}, seed {self._seed}",
            source_format="workload",
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        count = 0
        for row in self._rows(Texts(self.name, self._seed, self._params.block_tokens, self._params.ids)):
            rows.append(row)
            count += len(row["ids"])
            if len(rows) == ROWS_PER_BATCH or count >= IDS_PER_BATCH:
                yield self._batch(rows)
                rows, count = [], 0
        if rows:
            yield self._batch(rows)

    @abstractmethod
    def _rows(self, texts: Texts) -> Iterator[dict[str, Any]]:
        """The rows in order of arrival; ``ids`` stands for the id column."""

    def _stream(self, *names: str | int) -> random.Random:
        return stream(self._seed, self.name, *names)

    def _starts(self) -> Iterator[int]:
        """Times of starts in nanoseconds."""
        return start_times_ns(
            self.name,
            self._params,
            self._stream("arrivals"),
            self.default_rate,
            goes_on=self.goes_on,
            advice=self.advice,
        )

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = [
            pa.array([row["ids" if field.name == self._column else field.name] for row in rows], field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
