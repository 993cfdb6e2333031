"""What is taken over from a trace: how it arrives, how long its prompts are, and how they share.

Of each request the fit keeps what it was made of: its lengths, the leading full blocks that it shares with an
earlier request (the *parent*: the latest one that has them all), how many requests ago that was, and which request it
goes on with (:mod:`kvbench.results.like.conversations`). Conversations are
taken from these records whole, so that lengths, sharing and its distance stay together, and as many of them go on
at a time; the fan-out of the prefix tree follows.

Arrivals are bursts: rows that arrive at one time. Their sizes are taken as they are; the gaps between them
are a gamma distribution with their mean and coefficient of variation.

Requests that begin alike by the dozens do so because of a system prompt or a document, and which one it is
decides how often it is asked for: the fit keeps these templates, too (:mod:`kvbench.results.like.templates`).

Memory: 80 bytes a row, 24 a distinct block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.errors import TraceError
from kvbench.replays.engine import keyed_trace
from kvbench.results.carry import Latest, Names, grown
from kvbench.results.like.conversations import NONE, by_growth, by_session
from kvbench.results.like.templates import TemplateFinder, Templates, Uses
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvbench.replays.keyed import Keyed
    from kvbench.replays.plan import Plan
    from kvbench.trace.reader import Trace

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fit:
    """Records of requests, a row each, and of bursts.

    ``input_tokens``, ``output_tokens`` (NONE where unknown), ``think_ns`` (NONE where unknown).
    ``shared``        leading full blocks that the parent has, too; 0 without a parent.
    ``copies``        the prompt is the parent's to the last token.
    ``lag``           requests since the parent.
    ``same_session``  the parent is of the same session.
    ``before``        the request that this one goes on with; NONE for the first of a conversation.
    ``burst_rows``    rows of each burst; ``gap_mean_ns``, ``gap_cv`` of the gaps between them.
    ``first_seen``, ``reached``  for each depth, the different prefixes of so many blocks, and the requests that
                      have them.
    ``templates``     the popular prefixes (see :mod:`kvbench.results.like.templates`).
    """

    block_tokens: int
    tail_rule: str
    has_ids: bool
    has_sessions: bool
    input_tokens: Int64s
    output_tokens: Int64s
    think_ns: Int64s
    shared: Int64s
    copies: Bools
    lag: Int64s
    same_session: Bools
    before: Int64s
    burst_rows: Int64s
    gap_mean_ns: float
    gap_cv: float
    span_ns: int
    first_seen: Int64s
    reached: Int64s
    templates: Templates

    @property
    def rows(self) -> int:
        return len(self.input_tokens)

    @property
    def parent(self) -> Int64s:
        """The request that each one shares its leading blocks with; NONE where there is none."""
        return np.where(self.lag > 0, np.arange(self.rows) - self.lag, NONE)

    @property
    def distinct_blocks(self) -> int:
        """Different prefixes of any depth."""
        return int(self.first_seen.sum())


def fit(trace: Trace, plan: Plan, progress: Callable[[int, int | None], None] | None = None) -> Fit:
    """Read ``trace`` twice. Raises TraceError when there is nothing to fit."""
    gathered = _Gathered(trace)
    keyed = keyed_trace(trace, [plan])
    numbering, uses = keyed.numbering(), Uses()
    for item in keyed.batches():
        ids = numbering.ids(item.keys).astype(np.int64)
        gathered.add(item, ids)
        uses.add(ids)
        if progress is not None:
            progress(gathered.rows, trace.rows)
    numbering, finder = keyed.numbering(), TemplateFinder(uses, gathered.rows)
    for item in keyed.batches():
        tokens = numbers(item.batch.column("input_tokens")).astype(np.int64)
        full = tokens // max(1, trace.facts.block_tokens or 1)
        finder.add(numbering.ids(item.keys).astype(np.int64), item.keys.offsets, full)
    return gathered.fit(keyed.database is not None, finder.templates())


class _Gathered:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._block_tokens = trace.facts.block_tokens or 0
        if trace.ids is not None and not self._block_tokens:
            raise TraceError(f"{trace.name}: the block size is not known; import it with --block-tokens")
        self._latest = Latest(NONE)
        self._names = Names()
        self._tokens = np.zeros(0, np.int64)
        self._sessions = np.zeros(0, np.int64)
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}
        self._first_seen = np.zeros(0, np.int64)
        self._reached = np.zeros(0, np.int64)
        self.rows = 0

    def add(self, item: Keyed, ids: Int64s) -> None:
        batch, offsets = item.batch, item.keys.offsets
        rows = np.arange(self.rows, self.rows + batch.num_rows)
        tokens = numbers(batch.column("input_tokens")).astype(np.int64)
        sessions = self._session_numbers(item)
        end = self.rows + len(rows)
        self._tokens, self._sessions = grown(self._tokens, end, 0), grown(self._sessions, end, NONE)
        self._tokens[self.rows : end], self._sessions[self.rows : end] = tokens, sessions
        counts = np.diff(offsets)
        before = self._latest.before(ids, np.repeat(rows, counts))
        shared = _leading(before != NONE, offsets)
        place = np.arange(len(ids)) - np.repeat(offsets[:-1], counts)
        self._first_seen = _added(self._first_seen, place[before == NONE])
        self._reached = _added(self._reached, place)
        parent = np.full(len(rows), NONE)
        some = shared > 0
        parent[some] = before[offsets[:-1][some] + shared[some] - 1]
        parent_tokens = np.where(some, self._tokens[parent], 0)
        same = some & (sessions != NONE) & (self._sessions[parent] == sessions)
        copies = some & (shared == counts) & (parent_tokens == tokens)
        if self._block_tokens:
            shared = np.minimum(shared, tokens // self._block_tokens)
        for name, values in (
            ("arrival_ns", numbers(batch.column("arrival_ns"))),
            ("output_tokens", _or_none(item, "output_tokens")),
            ("think_ns", _or_none(item, "think_time_ns")),
            ("shared", shared),
            ("copies", copies),
            ("lag", np.where(some, rows - parent, 0)),
            ("same_session", same),
        ):
            self._columns.setdefault(name, []).append(np.array(values))
        self.rows += len(rows)

    def fit(self, has_ids: bool, templates: Templates) -> Fit:
        if self.rows == 0:
            raise TraceError(f"{self._trace.name}: has no rows to make more of")
        columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        arrivals = columns.pop("arrival_ns")
        starts = np.concatenate([[0], np.flatnonzero(np.diff(arrivals)) + 1])
        gaps = np.diff(arrivals[starts])
        mean = float(gaps.mean()) if len(gaps) else 0.0
        has_sessions = "session_id" in self._trace.schema.names
        if has_sessions:
            before = by_session(self._sessions[: self.rows])
        else:
            before = by_growth(self._tokens[: self.rows], columns["shared"], columns["lag"], self._block_tokens)
        return Fit(
            block_tokens=self._block_tokens,
            tail_rule=self._trace.facts.tail_rule if self._trace.ids == "block_ids" else "ceil",
            has_ids=has_ids,
            has_sessions=has_sessions,
            before=before,
            input_tokens=self._tokens[: self.rows],
            burst_rows=np.diff(np.append(starts, len(arrivals))),
            gap_mean_ns=mean,
            gap_cv=float(gaps.std()) / mean if mean else 0.0,
            span_ns=int(arrivals[-1] - arrivals[0]),
            first_seen=self._first_seen,
            reached=self._reached,
            templates=templates,
            **columns,
        )

    def _session_numbers(self, item: Keyed) -> Int64s:
        if "session_id" not in item.batch.schema.names:
            return np.full(item.batch.num_rows, NONE)
        return self._names.of(item.batch.column("session_id"))


def _leading(known: Bools, offsets: Int64s) -> Int64s:
    """How many leading entries of each row are known."""
    unknown = np.append(np.flatnonzero(~known), len(known))
    first: Int64s = unknown[np.searchsorted(unknown, offsets[:-1])]
    return np.minimum(first, offsets[1:]) - offsets[:-1]


def _added(counts: Int64s, places: Int64s) -> Int64s:
    more = np.bincount(places, minlength=len(counts))
    more[: len(counts)] += counts
    return more


def _or_none(item: Keyed, name: str) -> Int64s:
    if name not in item.batch.schema.names:
        return np.full(item.batch.num_rows, NONE)
    return numbers(item.batch.column(name).cast("int64").fill_null(NONE)).astype(np.int64)
