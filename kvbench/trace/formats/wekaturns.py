"""The requests of one WEKA conversation, sub-agents and all, in the order in which they arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from kvbench.trace.formats.fields import (
    MAX_ID,
    BadValue,
    id_array,
    made_id_count,
    nanoseconds,
    optional_ns,
    optional_whole,
    whole,
)
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvbench.trace.formats.fields import Ids

NS_PER_MS = 1_000_000
SUBAGENT = "subagent"
SUBAGENT_TIMES = ("auto", "launch", "marker", "conversation")


class Request(msgspec.Struct):
    """A request, or a sub-agent with its ``requests``; times in seconds, lengths in tokens."""

    t: float
    type: str
    model: str | None = None
    tokens: int | None = msgspec.field(default=None, name="in")
    output_tokens: int | None = msgspec.field(default=None, name="out")
    hash_ids: list[int] | None = None
    hash_rle: list[tuple[int, int]] | None = None
    api_time: float | None = None
    think_time: float | None = None
    ttft: float | None = None
    input_types: list[str] = []
    output_types: list[str] = []
    stop: str | None = None
    agent_id: str | None = None
    duration_ms: float | None = None
    requests: list[Request] | None = None

    @property
    def is_subagent(self) -> bool:
        return self.type == SUBAGENT or self.requests is not None


class Conversation(msgspec.Struct):
    """One document. ``file`` is there where many stand in one file."""

    block_size: int
    requests: list[Request]
    id: int | str | None = None
    file: str | None = None
    hash_id_scope: str | None = None

    @property
    def request_count(self) -> int:
        """How many requests there are, sub-agents' too."""
        return sum(len(entry.requests or ()) if entry.is_subagent else 1 for entry in self.requests)


@dataclass(slots=True)
class Turn:
    """One request of a conversation.

    ``number``     counts the requests of the conversation in the file's order, sub-agents' too, from 1.
    ``agent``      the sub-agent that asks; None: the conversation itself.
    ``position``   among the requests of its agent, from 0.
    ``start_ns``, ``end_ns``  from the start of the conversation; the end is None where the file does not say.
    ``turn``, ``think_ns``    place in the order of arrival, and the pause before it; None where unknown.
    """

    request: Request
    number: int
    agent: str | None
    position: int
    start_ns: int
    end_ns: int | None
    tokens: int
    output_tokens: int | None
    ids: Ids
    turn: int = 0
    think_ns: int | None = None


def turns_of(conversation: Conversation, subagent_time: str, refuse: Callable[[int, BadValue], None]) -> list[Turn]:
    """The requests of a conversation in order of arrival, ties as they stand in the file.

    ``subagent_time`` says what ``t`` of a sub-agent's request counts from:
    ``conversation``  its start, as AgentX has it;
    ``marker``        ``t`` of the sub-agent's entry;
    ``launch``        that less ``duration_ms``, for kv-cache-tester writes the entry when a sub-agent has ended
                      (one that runs in the background has no duration and is written when it starts);
    ``auto``          ``conversation`` where the first request does not come before the launch so, else ``launch``.

    ``refuse`` is told of each bad request by its number.
    """
    turns = []
    for number, place, request, agent, position, offset_ns in _walk(conversation, subagent_time, refuse):
        try:
            turns.append(_turn(request, number, agent, position, offset_ns, conversation.block_size))
        except BadValue as bad:
            name, value, rule = bad.args
            refuse(number, BadValue(f"{place}.{name}", value, rule))
    turns.sort(key=lambda turn: turn.start_ns)
    previous = None
    for index, turn in enumerate(turns):
        turn.turn = index
        if previous is not None:
            turn.think_ns = _think_ns(previous, turn)
        previous = turn
    return turns


def _walk(
    conversation: Conversation, subagent_time: str, refuse: Callable[[int, BadValue], None]
) -> Iterator[tuple[int, str, Request, str | None, int, int]]:
    """Number, place, request, agent, position and what its ``t`` counts from, in the file's order."""
    number = 0
    position = 0
    for index, entry in enumerate(conversation.requests):
        place = f"requests[{index}]"
        if not entry.is_subagent:
            number += 1
            yield number, place, entry, None, position, 0
            position += 1
            continue
        agent = f"{entry.agent_id or SUBAGENT}@{index}"
        inner = entry.requests or []
        try:
            offset_ns = _offset_ns(entry, subagent_time)
        except BadValue as bad:
            name, value, rule = bad.args
            refuse(number + 1, BadValue(f"{place}.{name}", value, rule))
            number += len(inner)
            continue
        for at, request in enumerate(inner):
            number += 1
            yield number, f"{place}.requests[{at}]", request, agent, at, offset_ns


def _offset_ns(entry: Request, subagent_time: str) -> int:
    """What the times of a sub-agent's requests count from."""
    marker_ns = nanoseconds("t", entry.t, NS_PER_S)
    duration_ns = optional_ns("duration_ms", entry.duration_ms, NS_PER_MS) or 0
    launch_ns = max(marker_ns - duration_ns, 0)
    if subagent_time == "auto":
        first_ns = nanoseconds("t", entry.requests[0].t, NS_PER_S) if entry.requests else 0
        return 0 if first_ns >= launch_ns else launch_ns
    return {"conversation": 0, "marker": marker_ns, "launch": launch_ns}[subagent_time]


def _turn(request: Request, number: int, agent: str | None, position: int, offset_ns: int, block_tokens: int) -> Turn:
    if request.is_subagent:
        raise BadValue("type", request.type, "a sub-agent of a sub-agent is not read")
    start_ns = offset_ns + nanoseconds("t", request.t, NS_PER_S)
    served_ns = optional_ns("api_time", request.api_time, NS_PER_S)
    optional_ns("think_time", request.think_time, NS_PER_S)
    tokens = whole("in", request.tokens)
    return Turn(
        request,
        number,
        agent,
        position,
        start_ns,
        None if served_ns is None else start_ns + served_ns,
        tokens,
        optional_whole("out", request.output_tokens),
        _ids(request, tokens, block_tokens),
    )


def _think_ns(previous: Turn, turn: Turn) -> int | None:
    """The pause before a turn: what the file says, where the turn before it is the same agent's."""
    said = turn.request.think_time
    if said is not None and previous.agent == turn.agent:
        return nanoseconds("think_time", said, NS_PER_S)
    return None if previous.end_ns is None else max(turn.start_ns - previous.end_ns, 0)


def _ids(request: Request, tokens: int, block_tokens: int) -> Ids:
    if request.hash_ids is not None:
        return id_array("hash_ids", request.hash_ids)
    if request.hash_rle is None:
        raise BadValue("hash_ids", None, "is missing")
    return _expanded(request.hash_rle, made_id_count("in", tokens, block_tokens))


def _expanded(runs: list[tuple[int, int]], wanted: int) -> Ids:
    """first, first + 1, … first + count - 1 for each run, which together have ``wanted`` ids."""
    for first, count in runs:
        if first < 0 or count < 1 or first + count - 1 > MAX_ID:
            raise BadValue("hash_rle", [first, count], f"must be the first id and their number, within 0 to {MAX_ID}")
    total = sum(count for _, count in runs)
    if total != wanted:
        raise BadValue("hash_rle", runs, f"stands for {total:,} ids, and the prompt has {wanted:,} full blocks")
    firsts = np.array([first for first, _ in runs], np.uint64)
    counts = np.array([count for _, count in runs], np.int64)
    starts = np.cumsum(counts) - counts
    return np.arange(wanted, dtype=np.uint64) + np.repeat(firsts - starts.astype(np.uint64), counts)
