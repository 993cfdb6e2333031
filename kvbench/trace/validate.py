"""Checks batches of a trace, one after another, against the schema's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from kvbench.errors import TraceError
from kvbench.trace import checks
from kvbench.trace.blocksize import FitSoFar, describe_fits
from kvbench.trace.columns import numbers, validity
from kvbench.trace.rejects import MAX_EXAMPLES, Rejected
from kvbench.trace.rows import first_undense

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from kvbench.trace.columns import Bools, Int64s
    from kvbench.trace.failures import Failure
    from kvbench.trace.schema import TraceFacts

OnError = Literal["fail", "skip"]


class BatchValidator:
    """Checks the batches of one trace in file order.

    ``facts``     what the rows must agree with.
    ``where``     name of the file, for messages.
    ``on_error``  ``fail`` raises for the first bad row; ``skip`` counts bad rows in ``rejected``.
    ``ordered``   whether arrivals must not decrease.
    ``ids_may_lack``  whether a row may be null in the id column.
    """

    def __init__(
        self,
        facts: TraceFacts,
        where: str,
        on_error: OnError = "fail",
        *,
        ordered: bool = True,
        ids_may_lack: bool = False,
        rejected: Rejected | None = None,
    ) -> None:
        self.rejected = Rejected() if rejected is None else rejected
        self._facts = facts
        self._where = where
        self._skip = on_error == "skip"
        self._ordered = ordered
        self._ids_may_lack = ids_may_lack
        self._rows = 0
        self._latest_ns = 0
        self._known_ids = 0
        self._fit = FitSoFar(facts.block_tokens or 1)

    def check(
        self,
        batch: pa.RecordBatch,
        failures: Sequence[Failure] = (),
        row_numbers: Int64s | None = None,
    ) -> Bools | None:
        """The rows of a version 1 ``batch`` to leave out, as a mask, or None when all are good.

        ``failures`` were found before, when the batch was cast. ``row_numbers`` say which row of
        the file each row is, when it is not simply the next. Raises TraceError when ``on_error``
        is ``fail``, and in any case for what no row alone is to blame for: no block size, or ids
        that are not dense though the file says so.
        """
        if batch.num_rows == 0:
            return None
        view = checks.View(batch)
        if row_numbers is None:
            row_numbers = np.arange(self._rows + 1, self._rows + 1 + batch.num_rows)
        self._require_block_size(view)
        found = [*failures, *self._find(view)]
        if self._ordered:
            found.extend(checks.order(view, self._latest_ns, _rows_of(found)))
        bad = self._judge(found, row_numbers)
        self._check_dense(view, row_numbers)
        self._remember(view, np.ones(batch.num_rows, np.bool_) if bad is None else ~bad)
        self._rows += batch.num_rows
        return bad

    def _remember(self, view: checks.View, good: Bools) -> None:
        arrivals = view.numbers("arrival_ns")[good]
        if len(arrivals):
            self._latest_ns = int(arrivals[-1])
        if view.ids == "block_ids":
            tokens, counts = view.block_counts()
            counted = good & validity(view.batch.column("block_ids"))
            self._fit.add(tokens[counted], counts[counted])

    def _find(self, view: checks.View) -> list[Failure]:
        return [
            *checks.nulls(view, self._ids_may_lack),
            *checks.times(view),
            *checks.prompt_length(view),
            *checks.list_lengths(view, self._facts, self._fit),
            *checks.repeats(view, self._facts),
        ]

    def _judge(self, found: list[Failure], row_numbers: Int64s) -> Bools | None:
        if not found:
            return None
        rows = _rows_of(found)
        for row in rows[: MAX_EXAMPLES if self._skip else 1].tolist():
            first = next(failure for failure in found if row in failure.rows)
            error = first.error(self._where, row, int(row_numbers[row]))
            if not self._skip:
                raise error.of_one_row()
            self.rejected.add(str(error))
        self.rejected.count += max(0, len(rows) - MAX_EXAMPLES)
        self.rejected.rows.extend(row_numbers[rows].tolist())
        bad = np.zeros(len(row_numbers), np.bool_)
        bad[rows] = True
        return bad

    def _require_block_size(self, view: checks.View) -> None:
        if view.ids != "block_ids" or self._facts.block_tokens is not None:
            return
        fits = describe_fits(*view.block_counts())
        raise TraceError(f"{self._where}: the file does not say its block size; give it with --block-tokens ({fits})")

    def _check_dense(self, view: checks.View, row_numbers: Int64s) -> None:
        if not self._facts.dense or view.ids != "block_ids":
            return
        parts = view.lists("block_ids")
        values = numbers(parts.values)
        index, self._known_ids = first_undense(values, self._known_ids)
        if index < 0:
            return
        row = int(np.searchsorted(parts.offsets, index, side="right")) - 1
        rule = (
            f"the file says that its ids are dense, so a new id here must be {self._known_ids}; "
            "make it anew with `kvbench trace import`"
        )
        raise TraceError.at(self._where, int(row_numbers[row]), "block_ids", int(values[index]), rule)


def _rows_of(found: Sequence[Failure]) -> Int64s:
    """All rows of the failures, ascending, each once."""
    if not found:
        return np.zeros(0, np.int64)
    return np.unique(np.concatenate([failure.rows for failure in found]))
