"""Makes requests from the records of a fit, with ids of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.results.carry import grown
from kvbench.results.like.conversations import NONE, Conversations
from kvbench.trace.schema import TraceFacts, make_schema
from kvbench.trace.synth import Workload, stream
from kvbench.trace.synth.arrivals import gamma
from kvbench.units import MAX_NS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from kvbench.results.like.fit import Fit

    Int64s = npt.NDArray[np.int64]

ROWS_PER_BATCH = 1024
IDS_PER_BATCH = 2**20
NEAR = 64
"""Requests around the fitted distance among which a parent is looked for first; then among four times as many."""
TRIED = 64
"""So many of them are looked at, the nearest to that distance first."""


class LikeWorkload(Workload):
    """``rows`` requests like those of ``fit``.

    A request of a conversation shares with the requests of it that its record shared with. Another one looks for a
    parent: the request nearest to as many requests ago as the record says that has the same template and the
    shared blocks at least, and is the last one that has them. It has the parent's leading
    blocks and then new ones. Templates are as many as the given trace has, however many rows are made.
    Memory: 80 bytes a row made, 8 a block.
    """

    def __init__(self, seed: int, fit: Fit, rows: int, name: str) -> None:
        self._seed = seed
        self._fit = fit
        self._count = rows
        self._name = name
        columns = {"arrival_ns", "input_tokens", "request_id"}
        if fit.has_ids:
            columns.add("block_ids")
        if bool((fit.output_tokens != NONE).any()):
            columns.add("output_tokens")
        if fit.has_sessions:
            columns |= {"session_id", "turn"}
            columns |= {"think_time_ns"} if bool((fit.think_ns != NONE).any()) else set()
        self._schema = make_schema(columns)

    @property
    def facts(self) -> TraceFacts:
        return TraceFacts(
            block_tokens=self._fit.block_tokens or None,
            tail_rule=self._fit.tail_rule,
            dense=self._fit.has_ids,
            source_name=f"like {self._name}, seed {self._seed}",
            source_format="workload",
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        history = _History(self._fit, self._count)
        arrivals = self._arrivals()
        conversations = Conversations(self._fit, self._count, stream(self._seed, "like", "records"))
        rows: list[dict[str, Any]] = []
        ids = 0
        for request in range(self._count):
            row = history.made(*conversations.next(request)) | {
                "arrival_ns": next(arrivals),
                "request_id": f"r{request}",
            }
            rows.append(row)
            ids += len(row["block_ids"])
            if len(rows) == ROWS_PER_BATCH or ids >= IDS_PER_BATCH:
                yield self._batch(rows)
                rows, ids = [], 0
        if rows:
            yield self._batch(rows)

    def _arrivals(self) -> Iterator[int]:
        """Times of all requests, burst by burst."""
        fit, sizes, gaps = self._fit, stream(self._seed, "like", "bursts"), stream(self._seed, "like", "gaps")
        now_ns = 0.0
        while True:
            for _ in range(int(fit.burst_rows[int(sizes.random() * len(fit.burst_rows))])):
                yield round(now_ns)
            now_ns += _gap(gaps, fit.gap_mean_ns, fit.gap_cv)
            if now_ns > MAX_NS:
                raise ConfigError(
                    "so many rows go on for more than 292 years, and times are 64-bit nanoseconds; lower --rows"
                )

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            values = [row[field.name] for row in rows]
            if field.name == "block_ids":
                offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
                arrays.append(pa.ListArray.from_arrays(offsets, np.concatenate(values).astype(np.uint64)))
            else:
                arrays.append(pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _gap(rng: random.Random, mean_ns: float, cv: float) -> float:
    if cv <= 0 or mean_ns <= 0:
        return mean_ns
    shape = cv**-2
    return gamma(rng, shape) * mean_ns / shape


class _History:
    """The requests made so far; their ids are found by going up from parent to parent."""

    def __init__(self, fit: Fit, rows: int) -> None:
        self._fit = fit
        self._parents = fit.parent
        self._made = 0
        self._next_id = 0
        self._sessions = 0
        self._tokens = np.zeros(rows, np.int64)
        self._full = np.zeros(rows, np.int64)
        self._parent = np.full(rows, NONE, np.int64)
        self._shared = np.zeros(rows, np.int64)
        self._latest = np.zeros(0, np.int64)  # of each id the last request that has it
        self._first_id = np.zeros(rows, np.int64)
        self._tail_id = np.full(rows, NONE, np.int64)
        self._template = np.full(rows, NONE, np.int64)
        self._present = np.zeros(len(fit.templates.within), np.bool_)  # templates that a request begins with
        self._session = np.zeros(rows, np.int64)
        self._turn = np.zeros(rows, np.int64)

    def made(self, record: int, conversation: Mapping[int, int]) -> dict[str, Any]:
        """The row of the next request, made from ``record``; without its arrival and name.

        ``conversation`` has the requests that were made from the records before it.
        """
        fit, at = self._fit, self._made
        shared, template = self._wanted(record)
        copies = bool(fit.copies[record]) and shared == fit.shared[record]
        parent = NONE
        if (shared or copies) and at:
            own = conversation.get(int(self._parents[record]), NONE)
            parent = own if own != NONE else self._find_parent(record, shared, template)
        copies = copies and parent != NONE and shared <= int(self._full[parent])
        tokens = int(self._tokens[parent]) if copies else int(fit.input_tokens[record])
        self._template[at] = fit.templates.of_row[record]
        self._present |= fit.templates.within[:, self._template[at]]
        self._made += 1
        self._tokens[at] = tokens
        shared = min(shared, int(self._full[parent])) if parent != NONE else 0
        ids = self._identify(at, parent, shared, copies) if fit.has_ids else np.zeros(0)
        self._place(at, conversation.get(int(fit.before[record]), NONE))
        output, think = int(fit.output_tokens[record]), int(fit.think_ns[record])
        return {
            "input_tokens": tokens,
            "output_tokens": None if output == NONE else output,
            "block_ids": ids,
            "session_id": f"s{self._session[at]}",
            "turn": int(self._turn[at]),
            "think_time_ns": None if think == NONE or self._turn[at] == 0 else think,
        }

    def _wanted(self, record: int) -> tuple[int, int]:
        """How many leading blocks to share, and the template that the parent has to begin with.

        A template comes up once: the request that is the first to have it shares what of it is there
        already, and no later one is made to be the first again.
        """
        fit, templates = self._fit, self._fit.templates
        shared, template = int(fit.shared[record]), int(templates.of_row[record])
        if template == NONE:
            return shared, NONE
        if self._present[template]:
            return max(shared, int(templates.depth[template])), template
        while template != NONE and not self._present[template]:
            template = int(templates.parent[template])
        return (0 if template == NONE else min(shared, int(templates.depth[template]))), template

    def _find_parent(self, record: int, shared: int, template: int) -> int:
        """The request made so far that is most like the parent of ``record``; NONE where none has the blocks."""
        made, lag = self._made, int(self._fit.lag[record])
        centre, width = made - min(lag, made), NEAR
        while True:
            low, high = max(0, centre - width), min(made, centre + width)
            able = np.flatnonzero(self._able(shared, template, low, high)) + low
            nearest = np.argsort(np.abs(np.log((made - able) / max(lag, 1))), kind="stable")
            candidate: int
            for candidate in able[nearest[:TRIED]].tolist():
                if shared == 0 or self._latest[self._id_at(candidate, shared - 1)] == candidate:
                    return candidate
            if low == 0 and high == made:
                return self._used_parent(shared, template, centre)
            width *= 4

    def _able(self, shared: int, template: int, low: int, high: int) -> npt.NDArray[np.bool_]:
        """Which of the requests from ``low`` to ``high`` have ``shared`` full blocks and begin with ``template``."""
        begins: npt.NDArray[np.bool_] = self._fit.templates.within[template, self._template[low:high]]
        return begins & (self._full[low:high] >= shared)

    def _used_parent(self, shared: int, template: int, centre: int) -> int:
        """The request nearest to ``centre`` that has the blocks, whoever has used them since; where none has, the
        one that has most of them; NONE where none begins with ``template``."""
        able = np.flatnonzero(self._able(shared, template, 0, self._made))
        if len(able):
            return int(able[int(np.argmin(np.abs(able - centre)))])
        begins = np.flatnonzero(self._able(1, template, 0, self._made))
        return int(begins[int(np.argmax(self._full[begins]))]) if len(begins) else NONE

    def _identify(self, at: int, parent: int, shared: int, copies: bool) -> Int64s:
        """Give request ``at`` its ids, and return them."""
        fit = self._fit
        full, tail = divmod(int(self._tokens[at]), fit.block_tokens)
        self._full[at], self._parent[at], self._shared[at] = full, parent, full if copies else min(shared, full)
        self._first_id[at] = self._next_id
        self._next_id += full - int(self._shared[at])
        if tail and fit.tail_rule == "ceil":
            if copies:
                self._tail_id[at] = self._tail_id[parent]
            else:
                self._tail_id[at] = self._next_id
                self._next_id += 1
        ids = self._leading(at, full)
        if self._tail_id[at] != NONE:
            ids = np.append(ids, self._tail_id[at])
        self._latest = grown(self._latest, self._next_id, NONE)
        self._latest[ids] = at
        return ids

    def _id_at(self, at: int, place: int) -> int:
        """The id of block ``place`` of request ``at``."""
        while place < self._shared[at]:
            at = int(self._parent[at])
        return int(self._first_id[at]) + place - int(self._shared[at])

    def _leading(self, at: int, count: int) -> Int64s:
        """The first ``count`` block ids of request ``at``."""
        parts = []
        while count > 0:
            shared = int(self._shared[at])
            if count > shared:
                first = int(self._first_id[at])
                parts.append(np.arange(first, first + count - shared))
            count, at = min(count, shared), int(self._parent[at])
        return np.concatenate(parts[::-1]) if parts else np.zeros(0, np.int64)

    def _place(self, at: int, before: int) -> None:
        """Put request ``at`` into the session of the request ``before`` it, or a new one."""
        if before == NONE:
            self._session[at] = self._sessions
            self._sessions += 1
        else:
            self._session[at] = self._session[before]
            self._turn[at] = self._turn[before] + 1
