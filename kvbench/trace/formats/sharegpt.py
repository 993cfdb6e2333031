"""ShareGPT conversations: ``id`` and ``conversations``, a list of ``from`` (human, gpt, system) and ``value``.

One JSON list of conversations, or one conversation a line. Each answer is a request: its prompt is all
before it. The files have no times, so the arrivals are made: conversations start one after another at
a steady pace, and so do the turns of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.errors import TraceError
from kvbench.trace.formats.chattext import ANSWER_ROLE, ROLES, ChatText, joined
from kvbench.trace.formats.documents import BadValue, documents, outline
from kvbench.trace.formats.textrows import TextFormat, TextRow, note, optional_text
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.text import Lines
    from kvbench.trace.formats.texttokens import Tokens


class ShareGPTFormat(TextFormat):
    """See the module. ``conversation_s``, ``turn_s``: the paces, in seconds."""

    name = "sharegpt"

    def __init__(self, *, conversation_s: float = 1.0, turn_s: float = 30.0, **rule: Any) -> None:
        super().__init__(**rule)
        self._conversation_s = conversation_s
        self._turn_s = turn_s
        self._conversations = 0

    def sniff(self, head: bytes, name: str) -> bool:
        return outline(head).starts.get("conversations") == "[" and b'"value"' in head

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        note(
            log,
            "arrivals",
            f"the files have no times: conversations start every {self._conversation_s:g} s and their turns follow "
            f"every {self._turn_s:g} s, so rates and reuse over time are not those of a service",
        )
        yield from self.batches(self._rows(lines, log), log)

    def _rows(self, lines: Lines, log: ReadLog) -> Iterator[TextRow]:
        chat = ChatText(self.rule, log)
        for number, document in documents(lines, log):
            try:
                rows = self._conversation(document, number, chat)
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
                continue
            yield from rows
            self._conversations += 1
            if not rows:
                log.ignored_fields["conversations without an answer"] += 1

    def _conversation(self, document: dict[str, Any], number: int, chat: ChatText) -> list[TextRow]:
        session = optional_text("id", document.get("id"))
        start = self._conversations * self._conversation_s
        return [
            TextRow(
                round((start + turn * self._turn_s) * NS_PER_S),
                prompt,
                number,
                output=answer,
                session_id=session,
                turn=turn,
            )
            for turn, (_, prompt, answer) in enumerate(turns_of("conversations", document.get("conversations"), chat))
        ]


def turns_of(name: str, messages: Any, chat: ChatText) -> Iterator[tuple[dict[str, Any], Tokens, Tokens]]:
    """Each answer among ``messages``, with the tokens of its prompt and its own; one without a prompt is none.

    Raises BadValue where ``messages`` is no list of messages.
    """
    if not isinstance(messages, list):
        raise BadValue(name, messages, "must be a list of messages")
    pieces: list[Tokens] = []
    for message in messages:
        mark, content = chat.message(message)
        role = message.get("role", message.get("from"))
        if ROLES.get(role, role) == ANSWER_ROLE and pieces:
            yield message, joined([*pieces, mark]), content
        pieces += [mark, content]
