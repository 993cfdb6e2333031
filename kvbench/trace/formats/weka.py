"""Conversations of coding agents as WEKA's kv-cache-tester and SemiAnalysis' AgentX record them.

One JSON object a conversation: a file each (a folder or an archive of them), or one a line. Its
``requests`` have ``t`` (seconds from the start of the conversation), ``in`` and ``out`` (tokens) and
``hash_ids``, one for each full block of ``block_size``, or ``hash_rle``, the same as runs of
[first, count]. An entry of type ``subagent`` holds the requests of a sub-agent. Ids mean something
within their conversation (``hash_id_scope`` ``local``), or in all (``global``, or absent).

The files do not say when a conversation began.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.fields import BadValue, BatchMaker, decoded, json_keys, say_once, whole
from kvbench.trace.formats.wekaturns import SUBAGENT, Conversation, Turn, turns_of
from kvbench.trace.schema import TraceFacts
from kvbench.units import MAX_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

BLOCK_TOKENS = 64
"""Where no conversation was read."""
MAX_DOCUMENT_BYTES = 1 << 30
SCOPES = {"local": "session", "global": "global", None: "global"}
NO_START = (
    "the files do not say when a conversation began: all start at 0 (starts=in-turn: one after another), "
    "so how conversations compete for the cache is not recorded"
)
UNUSED_FIELDS = ("ttft", "input_types", "output_types", "stop")


class WekaFormat(TraceFormat):
    """See the module.

    ``starts``         conversations all start at 0 (``together``), or each when the one before it has ended
                       (``in-turn``).
    ``subagents``      ``keep`` the requests of sub-agents, or ``drop`` them.
    ``subagent_time``  what ``t`` of a sub-agent's request counts from; see :func:`turns_of`.
    """

    def __init__(self, starts: str = "together", subagents: str = "keep", subagent_time: str = "auto") -> None:
        self._in_turn = starts == "in-turn"
        self._keep_subagents = subagents == "keep"
        self._subagent_time = subagent_time
        self._start_ns = 0
        self._names: Counter[str] = Counter()
        self._block_tokens: int | None = None
        self._scope: str | None = None

    def sniff(self, head: bytes, name: str) -> bool:
        return {"block_size", "requests"} <= json_keys(head)

    def facts(self) -> TraceFacts:
        return TraceFacts(
            block_tokens=self._block_tokens or BLOCK_TOKENS,
            tail_rule="floor",
            id_scope=self._scope or "session",
            source_format="weka",
        )

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        decoder = msgspec.json.Decoder(Conversation)
        batch = BatchMaker(
            "arrival_ns",
            "input_tokens",
            "output_tokens",
            "block_ids",
            "request_id",
            "session_id",
            "turn",
            "think_time_ns",
            "model",
            "type",
        )
        if not self._in_turn:
            say_once(log, NO_START)
        rows = 0
        for number, document in _documents(lines):
            try:
                conversation = decoded(decoder, document)
                self._agree(conversation)
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
                continue
            session = self._session(conversation, lines.name)
            for _ in self._rows(conversation, session, rows, batch, log, lines.name):
                if batch.is_full:
                    yield from batch.flush()
            rows += conversation.request_count
        yield from batch.flush()

    def _agree(self, conversation: Conversation) -> None:
        """What must be equal in all conversations of a trace."""
        size = whole("block_size", conversation.block_size)
        if size == 0:
            raise BadValue("block_size", size, "must be 1 at least")
        if conversation.hash_id_scope not in SCOPES:
            raise BadValue("hash_id_scope", conversation.hash_id_scope, "must be local or global")
        scope = SCOPES[conversation.hash_id_scope]
        if self._block_tokens not in (None, size):
            rule = f"is not that of the conversations before, {self._block_tokens}; import them apart"
            raise BadValue("block_size", size, rule)
        if self._scope not in (None, scope):
            rule = "is not that of the conversations before; import them apart"
            raise BadValue("hash_id_scope", conversation.hash_id_scope, rule)
        self._block_tokens, self._scope = size, scope

    def _session(self, conversation: Conversation, where: str) -> str:
        """A name for the conversation that no other has."""
        name = str(conversation.file or conversation.id or where).removesuffix(".json")
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}#{self._names[name]}"

    def _rows(
        self, conversation: Conversation, session: str, before: int, batch: BatchMaker, log: ReadLog, where: str
    ) -> Iterator[None]:
        """Add the conversation's requests to ``batch``; control comes back after each."""

        def refuse(number: int, bad: BadValue) -> None:
            place, value, rule = bad.args
            log.refuse(TraceError.at(where, before + number, f"{session} {place}", value, rule))

        turns = turns_of(conversation, self._subagent_time, refuse)
        last_ns = 0
        for turn in turns:
            last_ns = max(last_ns, turn.end_ns or turn.start_ns)
            if turn.agent is not None and not self._keep_subagents:
                continue
            if self._start_ns + turn.start_ns > MAX_NS:
                refuse(turn.number, BadValue("t", turn.request.t, "puts the arrival too far off"))
                continue
            self._add(batch, before, session, turn)
            log.ignored_fields.update(name for name in UNUSED_FIELDS if getattr(turn.request, name))
            yield
        if self._in_turn:
            self._start_ns += last_ns

    def _add(self, batch: BatchMaker, before: int, session: str, turn: Turn) -> None:
        agent = f"/{turn.agent}" if turn.agent is not None else ""
        batch.add(
            before + turn.number,
            arrival_ns=self._start_ns + turn.start_ns,
            input_tokens=turn.tokens,
            output_tokens=turn.output_tokens,
            block_ids=turn.ids,
            request_id=f"{session}{agent}/{turn.position}",
            session_id=session,
            turn=turn.turn,
            think_time_ns=turn.think_ns,
            model=turn.request.model,
            type=SUBAGENT if turn.agent is not None else turn.request.type,
        )


def _documents(lines: Lines) -> Iterator[tuple[int, bytes]]:
    """The JSON documents of a file: the whole of it, or one a line; with the number of the line where each starts."""
    parts: list[bytes] = []
    first, length = 0, 0
    by_line = False
    for number, line in lines:
        if by_line or (not parts and line.endswith(b"}")):
            by_line = True
            yield number, line
            continue
        first = first or number
        length += len(line)
        if length > MAX_DOCUMENT_BYTES:
            raise TraceError(f"{lines.name}: a conversation of more than {MAX_DOCUMENT_BYTES:,} bytes is too large")
        parts.append(line)
    if parts:
        yield first, b"\n".join(parts)
