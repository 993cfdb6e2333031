"""The rules a row must keep, each as a check over a whole batch.

A check takes a :class:`View` of a batch and yields a :class:`Failure` when rows break its rule.
Rows with a null where none may be are told once, by :func:`nulls`; the other checks see 0 there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.trace.blocksize import FitSoFar, id_count
from kvbench.trace.columns import ListParts, list_parts, numbers, validity
from kvbench.trace.failures import Failure, Phrase
from kvbench.trace.rows import first_repeat_rows
from kvbench.trace.schema import COLUMN_BY_NAME, TraceFacts, id_column, is_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from kvbench.trace.columns import Int64s, Numbers


class View:
    """A version 1 batch with its columns as NumPy arrays, each made once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.ids = id_column(batch.schema)
        self._lists: dict[str, ListParts] = {}

    def has(self, name: str) -> bool:
        return name in self.batch.schema.names

    def numbers(self, name: str) -> Numbers:
        return numbers(self.batch.column(name))

    def lists(self, name: str) -> ListParts:
        if name not in self._lists:
            self._lists[name] = list_parts(self.batch.column(name))
        return self._lists[name]

    def block_counts(self) -> tuple[Int64s, Int64s]:
        """Input tokens and number of block ids of each row."""
        return self.numbers("input_tokens").astype(np.int64), self.lists("block_ids").lengths


def nulls(view: View, ids_may_lack: bool) -> Iterator[Failure]:
    """No null in a required column, in the id column (unless ``ids_may_lack``), or inside a list."""
    for name in view.batch.schema.names:
        column = view.batch.column(name)
        must = COLUMN_BY_NAME[name].required or (name == view.ids and not ids_may_lack)
        if must and column.null_count:
            rows = np.flatnonzero(~validity(column))
            yield Failure(rows, name, lambda _: None, lambda _: "must not be null")
        if is_list(column.type) and view.lists(name).values.null_count:
            yield _null_entries(name, view.lists(name))


def _null_entries(name: str, parts: ListParts) -> Failure:
    at = np.flatnonzero(~validity(parts.values))
    rows, first = np.unique(np.searchsorted(parts.offsets, at, side="right") - 1, return_index=True)
    entry = dict(zip(rows.tolist(), (at[first] - parts.offsets[rows] + 1).tolist(), strict=True))
    return Failure(rows, name, lambda _: None, lambda row: f"entry {entry[row]} of the list is null")


def times(view: View) -> Iterator[Failure]:
    """No time lies before 0."""
    for name in ("arrival_ns", "think_time_ns"):
        if view.has(name):
            values = view.numbers(name)
            rows = np.flatnonzero(values < 0)
            if len(rows):
                yield Failure(rows, name, _item(values), lambda _: "must not be negative")


def prompt_length(view: View) -> Iterator[Failure]:
    """A prompt has at least one token."""
    values = view.numbers("input_tokens")
    rows = np.flatnonzero((values == 0) & validity(view.batch.column("input_tokens")))
    if len(rows):
        yield Failure(rows, "input_tokens", _item(values), lambda _: "a request must have at least one input token")


def list_lengths(view: View, facts: TraceFacts, fit: FitSoFar) -> Iterator[Failure]:
    """As many ids as the prompt has tokens, or blocks by the tail rule; ``fit`` is of the rows before."""
    if view.ids == "block_ids":
        yield from _block_counts(view, facts, fit)
        if view.has("original_ids"):
            yield from _original_counts(view)
    elif view.ids == "token_ids":
        yield from _token_counts(view)


def _block_counts(view: View, facts: TraceFacts, fit: FitSoFar) -> Iterator[Failure]:
    block_tokens = facts.block_tokens or 1
    tokens, counts = view.block_counts()
    wanted = id_count(tokens, block_tokens, facts.tail_rule)
    rows = np.flatnonzero((counts != wanted) & validity(view.batch.column("block_ids")))
    if not len(rows):
        return
    tails = f"blocks of {block_tokens:,} (tails {_TAILS[facts.tail_rule]}: {facts.tail_rule})"

    def rule(row: int) -> str:
        hint = fit.hint(tokens[: row + 1], counts[: row + 1], facts.tail_rule)
        return f"{tokens[row]:,} input tokens in {tails} make {wanted[row]:,}{hint}"

    yield Failure(rows, "block_ids", lambda row: _ids(counts[row]), rule)


def _original_counts(view: View) -> Iterator[Failure]:
    counts, wanted = view.lists("original_ids").lengths, view.lists("block_ids").lengths
    rows = np.flatnonzero(counts != wanted)
    if len(rows):
        rule = "there must be as many as block_ids, which has"
        yield Failure(rows, "original_ids", lambda row: _ids(counts[row]), lambda row: f"{rule} {wanted[row]:,}")


def _token_counts(view: View) -> Iterator[Failure]:
    tokens = view.numbers("input_tokens").astype(np.int64)
    counts = view.lists("token_ids").lengths
    rows = np.flatnonzero((counts != tokens) & validity(view.batch.column("token_ids")))
    if len(rows):
        rule = "there must be one for each input token, and input_tokens is"
        yield Failure(rows, "token_ids", lambda row: _ids(counts[row]), lambda row: f"{rule} {tokens[row]:,}")


def repeats(view: View, facts: TraceFacts) -> Iterator[Failure]:
    """An id that names a whole prefix cannot stand twice in one row."""
    if view.ids != "block_ids" or facts.id_kind != "prefix":
        return
    parts = view.lists("block_ids")
    values = numbers(parts.values)
    bad = np.zeros(len(parts.offsets) - 1, np.uint8)
    if first_repeat_rows(values, parts.offsets, bad) == 0:
        return

    def repeated(row: int) -> int:
        ids, counts = np.unique(values[parts.offsets[row] : parts.offsets[row + 1]], return_counts=True)
        return int(ids[counts > 1][0])

    rule = "stands twice in the row, and an id of kind prefix names one place in a prompt"
    yield Failure(np.flatnonzero(bad), "block_ids", repeated, lambda _: rule)


def order(view: View, latest_ns: int, excluded: Int64s) -> Iterator[Failure]:
    """Arrivals never decrease; ``latest_ns`` is that of the rows before, ``excluded`` rows do not count."""
    arrivals = view.numbers("arrival_ns").copy()
    arrivals[excluded] = latest_ns
    before = np.maximum.accumulate(np.concatenate([[latest_ns], arrivals]))[:-1]
    rows = np.flatnonzero(arrivals < before)
    if len(rows):
        rule = "rows must be in order of arrival, and an earlier row has"
        yield Failure(rows, "arrival_ns", _item(arrivals), lambda row: f"{rule} {before[row]:,}")


_TAILS = {"ceil": "counted", "floor": "not counted"}


def _ids(count: int) -> Phrase:
    return Phrase(f"{count:,} id" if count == 1 else f"{count:,} ids")


def _item(values: Numbers) -> Callable[[int], int]:
    return lambda row: int(values[row])
