"""Agents: loops of model calls and tools, some of which are agents themselves.

The prompt of a step is the system prompt (with the tools' definitions), the task, and all answers and
results of tools so far. After an answer (at 20 ms a token) a tool runs, and its result leads to the next
step. A call may go to a sub-agent instead: a conversation of its own, with the sub-agents' system prompt,
whose report takes the place of the result. What is shared: a conversation's own past, system prompts
between conversations.

Expected reuse: a conversation has 1 + G prompts, G geometric with mean g (steps - 1). With s system, t task, o
output and r result tokens on average and blocks of B tokens its prompts have (1 + g) (s + t) + g (1 + g) (o + r)
tokens; a later step hits the prompt before it, of which half a block less half a token is lost on average:
g (s + t - (B - 1) / 2) + g² (o + r). First steps hit the full blocks of the system prompt wherever it was seen
before. A session has g times the share q of sub-agents (which have none); no sub-agent is seen with the
chance 1 / (1 + g q) to the power of the sessions.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.trace.synth.arrivals import ArrivalParams
from kvbench.trace.synth.draw import (
    OUTPUT_SIGMA,
    cumulated,
    expected_distinct,
    exponential,
    geometric,
    lognormal_count,
    pick,
    zipf_shares,
)
from kvbench.trace.synth.limits import check_params, nanoseconds, too_late
from kvbench.trace.synth.rows import RowWorkload
from kvbench.units import MAX_NS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from kvbench.trace.synth.texts import Text, Texts

NS_PER_OUTPUT_TOKEN = 20_000_000
TASK_SIGMA = 0.8
TOOL_SIGMA = 1.0
ZIPF_EXPONENT = 1.0


@dataclass(frozen=True, slots=True)
class AgentParams(ArrivalParams):
    """``sessions`` of agents of ``system_prompts`` kinds (popular by Zipf's law) with ``system_tokens``.

    ``task_tokens`` of the first message, ``output_tokens`` an answer, ``tool_tokens`` a result (means, lognormal),
    ``steps`` model calls a session (mean, geometric), ``tool_s`` a tool's time (mean, exponential),
    ``subagent_share`` of the tool calls that start a sub-agent of ``subagent_steps`` (mean) with
    ``subagent_system_tokens``, ``rate`` sessions started per second (0.1), ``ids`` either ``block`` or ``token``.
    """

    sessions: int = 100
    system_prompts: int = 3
    system_tokens: int = 8000
    task_tokens: float = 400.0
    steps: float = 12.0
    output_tokens: float = 200.0
    tool_tokens: float = 600.0
    tool_s: float = 2.0
    subagent_share: float = 0.1
    subagent_system_tokens: int = 4000
    subagent_steps: float = 5.0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        floors = {
            "sessions": 1,
            "system_prompts": 1,
            "system_tokens": 0,
            "task_tokens": 1,
            "steps": 1,
            "output_tokens": 1,
            "tool_tokens": 1,
            "tool_s": 0,
            "subagent_share": 0,
            "subagent_system_tokens": 0,
            "subagent_steps": 1,
            "block_tokens": 1,
        }
        check_params("agent", self, floors=floors, choices={"ids": ("block", "token")}, shares=("subagent_share",))
        self.check_arrivals("agent")


class _Conversation:
    """One agent at work: what it will do is drawn from a stream of its own."""

    def __init__(self, name: str, rng: random.Random, system: tuple[tuple[str | int, ...], int], steps: int) -> None:
        self.name = name
        self.rng = rng
        self.system = system
        self.steps_left = steps
        self.turn = 0
        self.text: Text | None = None
        self.grow_by = 0
        self.ended_ns: int | None = None
        self.subagents = 0
        self.parent: _Conversation | None = None


class AgentWorkload(RowWorkload[AgentParams]):
    """See the module; parameters as in :class:`AgentParams`."""

    name = "agent"
    columns = ("session_id", "turn", "think_time_ns", "type")
    default_rate = 0.1
    goes_on = "agents"
    advice = "raise rate, or lower sessions, steps, output_tokens or tool_s"

    @property
    def expected_token_rate(self) -> float:
        p = self._params
        own = _expected(p, p.system_tokens, p.steps - 1)
        sub = _expected(p, p.subagent_system_tokens, p.subagent_steps - 1)
        subagents = (p.steps - 1) * p.subagent_share
        first, sub_first = (
            tokens // p.block_tokens * p.block_tokens for tokens in (p.system_tokens, p.subagent_system_tokens)
        )
        seen = expected_distinct(zipf_shares(p.system_prompts, ZIPF_EXPONENT), p.sessions)
        sub_seen = 1 - (1 + subagents) ** -p.sessions
        hit = p.sessions * (own[0] + subagents * sub[0])
        hit += first * (p.sessions - seen) + sub_first * (p.sessions * subagents - sub_seen)
        return hit / (p.sessions * (own[1] + subagents * sub[1]))

    @property
    def shared_prefixes(self) -> Mapping[str, int]:
        params = self._params
        return {
            "system_tokens": params.system_tokens,
            "subagent_system_tokens": params.subagent_system_tokens,
        }

    def _rows(self, texts: Texts) -> Iterator[dict[str, Any]]:
        order = itertools.count()
        due: list[tuple[int, int, _Conversation]] = []
        sessions = self._sessions()
        upcoming = next(sessions, None)
        while due or upcoming is not None:
            if upcoming is not None and (not due or upcoming[0] <= due[0][0]):
                heapq.heappush(due, (upcoming[0], next(order), upcoming[1]))
                upcoming = next(sessions, None)
                continue
            arrival_ns, _, conversation = heapq.heappop(due)
            row = self._step(conversation, arrival_ns, texts)
            yield row
            done_ns = arrival_ns + row["output_tokens"] * NS_PER_OUTPUT_TOKEN
            following = self._after(conversation, row["output_tokens"], done_ns)
            if following is not None:
                heapq.heappush(due, (following[0], next(order), following[1]))

    def _sessions(self) -> Iterator[tuple[int, _Conversation]]:
        """Start and agent of each session."""
        params = self._params
        kinds, starts = self._stream("system prompts"), self._starts()
        cumulative = cumulated(zipf_shares(params.system_prompts, ZIPF_EXPONENT))
        for session in range(params.sessions):
            rng = self._stream("session", session)
            system = (("system", pick(kinds, cumulative)), params.system_tokens)
            yield next(starts), _Conversation(f"s{session}", rng, system, geometric(rng, params.steps))

    def _step(self, conversation: _Conversation, arrival_ns: int, texts: Texts) -> dict[str, Any]:
        """The row of the next step, which arrives at ``arrival_ns``."""
        if arrival_ns > MAX_NS:
            raise too_late(self.name, goes_on=self.goes_on, advice=self.advice)
        params, rng, ended_ns = self._params, conversation.rng, conversation.ended_ns
        if conversation.text is None:
            conversation.text = texts.named(conversation.system).fork()
            conversation.grow_by = lognormal_count(rng, params.task_tokens, TASK_SIGMA)
        conversation.text.grow(conversation.grow_by)
        output = lognormal_count(rng, params.output_tokens, OUTPUT_SIGMA)
        conversation.steps_left -= 1
        conversation.turn += 1
        return {
            "arrival_ns": arrival_ns,
            "input_tokens": conversation.text.tokens,
            "output_tokens": output,
            "request_id": f"{conversation.name}-t{conversation.turn - 1}",
            "session_id": conversation.name,
            "turn": conversation.turn - 1,
            "think_time_ns": None if ended_ns is None else arrival_ns - ended_ns,
            "type": "agent" if conversation.parent is None else "subagent",
            "ids": conversation.text.ids(),
        }

    def _after(self, conversation: _Conversation, output_tokens: int, done_ns: int) -> tuple[int, _Conversation] | None:
        """Who makes the next step, and when, once ``conversation`` has answered at ``done_ns``."""
        params, rng = self._params, conversation.rng
        conversation.ended_ns = done_ns
        if conversation.steps_left == 0:
            parent = conversation.parent
            return None if parent is None else (done_ns, parent)
        conversation.grow_by = output_tokens + lognormal_count(rng, params.tool_tokens, TOOL_SIGMA)
        if conversation.parent is None and rng.random() < params.subagent_share:
            return done_ns, self._subagent(conversation)
        pause_ns = nanoseconds(self.name, exponential(rng, params.tool_s), goes_on=self.goes_on, advice=self.advice)
        return done_ns + pause_ns, conversation

    def _subagent(self, parent: _Conversation) -> _Conversation:
        name = f"{parent.name}.{parent.subagents}"
        parent.subagents += 1
        rng = self._stream("session", name)
        system = (("subagent",), self._params.subagent_system_tokens)
        started = _Conversation(name, rng, system, geometric(rng, self._params.subagent_steps))
        started.parent = parent
        return started


def _expected(params: AgentParams, system_tokens: int, later: float) -> tuple[float, float]:
    """Tokens that the later steps of a conversation hit, and those that all of its steps ask for, on average."""
    start, grown = system_tokens + params.task_tokens, params.output_tokens + params.tool_tokens
    hit = later * (start - (params.block_tokens - 1) / 2) + later * later * grown
    return hit, (1 + later) * start + later * (1 + later) * grown


def make_agent(seed: int, **params: int | float | str) -> AgentWorkload:
    """The factory of the ``agent`` workload. Raises ConfigError for values out of range."""
    return AgentWorkload(seed, AgentParams(**params))  # type: ignore[arg-type]
