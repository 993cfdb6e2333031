"""Chat: people who talk in turns, with system prompts that many of them share.

The prompt of a turn is the system prompt and the whole talk so far, answers included. Sessions
start as :mod:`kvbench.trace.synth.arrivals` has it; a next turn comes after the answer was given (at
20 ms a token) and a pause for thought. What is shared: the system prompt's blocks between sessions that
have the same one, and a session's blocks between its turns.

Expected reuse, with m turns, s system, u user and o output tokens on average, N sessions, D system
prompts seen (:func:`kvbench.trace.synth.draw.expected_distinct`) and blocks of B tokens: the prompts of a session have
m s + m² u + m (m - 1) o tokens. A later turn hits the prompt before it, of which a half block less half
a token is lost on average: (m - 1) (s - (B - 1) / 2) + m (m - 1) u + (m - 1)² o a session; first turns hit
the full blocks of the system prompt, (N - D) ⌊s / B⌋ B in all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.trace.schema import TraceFacts, make_schema
from kvbench.trace.synth import Workload, stream
from kvbench.trace.synth.arrivals import ArrivalParams, start_times_ns
from kvbench.trace.synth.draw import (
    OUTPUT_SIGMA,
    expected_distinct,
    exponential,
    geometric,
    lognormal_count,
    pick,
    token,
    zipf_shares,
    zipf_weights,
)
from kvbench.trace.synth.limits import check_params, nanoseconds, too_late
from kvbench.units import MAX_NS, MAX_TOKENS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

NS_PER_OUTPUT_TOKEN = 20_000_000
USER_SIGMA = 0.8
ZIPF_EXPONENT = 1.0
DEFAULT_RATE = 0.5
ROWS_PER_BATCH = 1024
BATCH_COLUMNS = (
    "arrival_ns",
    "input_tokens",
    "output_tokens",
    "request_id",
    "session_id",
    "turn",
    "think_time_ns",
)
TOO_LATE = {"goes_on": "chats", "advice": "raise rate, or lower sessions, turns, output_tokens or think_s"}


@dataclass(frozen=True, slots=True)
class ChatParams(ArrivalParams):
    """``sessions`` talks over ``system_prompts`` system prompts (popular by Zipf's law) of ``system_tokens``.

    ``turns`` a session (mean, geometric), ``user_tokens`` a question and ``output_tokens`` an answer
    (means, lognormal), ``think_s`` between an answer and the next question (mean, exponential),
    ``rate`` sessions started per second (0.5), ``ids`` either ``block`` or ``token``.
    """

    sessions: int = 200
    system_prompts: int = 4
    system_tokens: int = 1024
    turns: float = 5.0
    user_tokens: float = 120.0
    output_tokens: float = 250.0
    think_s: float = 20.0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        floors = {
            "sessions": 1,
            "system_prompts": 1,
            "system_tokens": 0,
            "turns": 1,
            "user_tokens": 1,
            "output_tokens": 1,
            "think_s": 0,
            "block_tokens": 1,
        }
        check_params("chat", self, floors=floors, choices={"ids": ("block", "token")})
        self.check_arrivals("chat")


@dataclass(slots=True)
class _Turn:
    arrival_ns: int
    session: int
    turn: int
    user_tokens: int
    output_tokens: int
    think_ns: int | None
    last: bool


@dataclass(slots=True)
class _Talk:
    """A session under way: its tokens so far, and the ids of its full blocks or of all its tokens."""

    tokens: int
    ids: list[int] = field(default_factory=list)


class ChatWorkload(Workload):
    """See the module; parameters as in :class:`ChatParams`."""

    def __init__(self, seed: int, params: ChatParams | None = None) -> None:
        self._seed = seed
        self._params = params or ChatParams()
        column = "block_ids" if self._params.ids == "block" else "token_ids"
        self._schema = make_schema({*BATCH_COLUMNS, column})

    @property
    def facts(self) -> TraceFacts:
        return TraceFacts(
            block_tokens=self._params.block_tokens,
            dense=self._params.ids == "block",
            source_name=f"chat, seed {self._seed}",
            source_format="workload",
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def expected_token_rate(self) -> float:
        p = self._params
        later, loss = p.turns - 1, (p.block_tokens - 1) / 2
        asked = p.turns * (p.system_tokens + p.turns * p.user_tokens + later * p.output_tokens)
        hit = later * (p.system_tokens - loss + p.turns * p.user_tokens + later * p.output_tokens)
        first = p.system_tokens // p.block_tokens * p.block_tokens
        seen = expected_distinct(zipf_shares(p.system_prompts, ZIPF_EXPONENT), p.sessions)
        return (hit + first * (1 - seen / p.sessions)) / asked

    @property
    def shared_prefixes(self) -> Mapping[str, int]:
        return {"system_tokens": self._params.system_tokens}

    def batches(self) -> Iterator[pa.RecordBatch]:
        turns = self._turns()
        identity = _Blocks(self._params) if self._params.ids == "block" else _Tokens(self._params, self._seed)
        system = self._system_prompts()
        talks: dict[int, _Talk] = {}
        for start in range(0, len(turns), ROWS_PER_BATCH):
            chunk = turns[start : start + ROWS_PER_BATCH]
            yield self._batch([self._row(turn, talks, system, identity) for turn in chunk])

    def _turns(self) -> list[_Turn]:
        """All turns of all sessions by arrival; ties go to the session that started first."""
        params = self._params
        starts = stream(self._seed, "chat", "starts")
        counts = stream(self._seed, "chat", "turns")
        times = start_times_ns("chat", params, starts, DEFAULT_RATE, **TOO_LATE)
        turns: list[_Turn] = []
        for session in range(params.sessions):
            turns.extend(self._session(session, next(times), geometric(counts, params.turns)))
        turns.sort(key=lambda turn: (turn.arrival_ns, turn.session, turn.turn))
        return turns

    def _session(self, session: int, start_ns: int, count: int) -> Iterator[_Turn]:
        params = self._params
        rng = stream(self._seed, "chat", "session", session)
        arrival_ns, think_ns = start_ns, None
        for turn in range(count):
            user = lognormal_count(rng, params.user_tokens, USER_SIGMA)
            output = lognormal_count(rng, params.output_tokens, OUTPUT_SIGMA)
            if arrival_ns > MAX_NS:
                raise too_late("chat", **TOO_LATE)
            yield _Turn(arrival_ns, session, turn, user, output, think_ns, turn == count - 1)
            think_ns = _nanoseconds(exponential(rng, params.think_s))
            arrival_ns += output * NS_PER_OUTPUT_TOKEN + think_ns

    def _system_prompts(self) -> list[int]:
        """The system prompt of each session."""
        rng = stream(self._seed, "chat", "system prompts")
        cumulative = zipf_weights(self._params.system_prompts, ZIPF_EXPONENT)
        return [pick(rng, cumulative) for _ in range(self._params.sessions)]

    def _row(
        self, turn: _Turn, talks: dict[int, _Talk], system: list[int], identity: _Blocks | _Tokens
    ) -> dict[str, object]:
        talk = talks.setdefault(turn.session, _Talk(self._params.system_tokens))
        talk.tokens += turn.user_tokens
        if talk.tokens > MAX_TOKENS:
            raise ConfigError(
                f"workload chat: turn {turn.turn} of session {turn.session} has a prompt of {talk.tokens:,} tokens, "
                f"above {MAX_TOKENS:,}; lower turns, user_tokens or output_tokens"
            )
        ids = identity.prompt(talk, turn.session, system[turn.session])
        row = {
            "arrival_ns": turn.arrival_ns,
            "input_tokens": talk.tokens,
            "output_tokens": turn.output_tokens,
            identity.column: ids,
            "request_id": f"s{turn.session}-t{turn.turn}",
            "session_id": f"s{turn.session}",
            "turn": turn.turn,
            "think_time_ns": turn.think_ns,
        }
        talk.tokens += turn.output_tokens
        if turn.last:
            del talks[turn.session]
        return row

    def _batch(self, rows: list[dict[str, object]]) -> pa.RecordBatch:
        arrays = [pa.array([row[field.name] for row in rows], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Blocks:
    """Block ids 0 … U-1 in first-seen order. A partial last block has an id that is used once:
    the block that it becomes later has other content."""

    column = "block_ids"

    def __init__(self, params: ChatParams) -> None:
        self._block_tokens = params.block_tokens
        self._shared_blocks = params.system_tokens // params.block_tokens
        self._system: dict[int, list[int]] = {}
        self._next = 0

    def prompt(self, talk: _Talk, session: int, system: int) -> list[int]:
        if system not in self._system:
            self._system[system] = self._fresh(self._shared_blocks)
        if not talk.ids:
            talk.ids = self._system[system].copy()
        full, tail = divmod(talk.tokens, self._block_tokens)
        talk.ids += self._fresh(full - len(talk.ids))
        return talk.ids + self._fresh(1 if tail else 0)

    def _fresh(self, count: int) -> list[int]:
        first = self._next
        self._next += count
        return list(range(first, self._next))


class _Tokens:
    """Token ids below 32000, drawn once for each system prompt and each session."""

    column = "token_ids"

    def __init__(self, params: ChatParams, seed: int) -> None:
        self._seed = seed
        self._system_tokens = params.system_tokens
        self._system: dict[int, list[int]] = {}
        self._streams: dict[int, random.Random] = {}

    def prompt(self, talk: _Talk, session: int, system: int) -> list[int]:
        if system not in self._system:
            rng = stream(self._seed, "chat", "system", system)
            self._system[system] = [token(rng) for _ in range(self._system_tokens)]
        if session not in self._streams:
            self._streams[session] = stream(self._seed, "chat", "talk", session)
            talk.ids = self._system[system].copy()
        rng = self._streams[session]
        talk.ids += [token(rng) for _ in range(talk.tokens - len(talk.ids))]
        return talk.ids.copy()


def _nanoseconds(seconds: float) -> int:
    return nanoseconds("chat", seconds, **TOO_LATE)


def make_chat(seed: int, **params: int | float | str) -> ChatWorkload:
    """The factory of the ``chat`` workload. Raises ConfigError for values out of range."""
    return ChatWorkload(seed, ChatParams(**params))  # type: ignore[arg-type]
