"""Chat messages as token ids.

No log says what chat template its server used, so there is one here: each message is a mark with
its role and then its content, and the answer is what follows the mark ``assistant``. Mark and
content become tokens apart. So two prompts share the tokens of every message that they share from the
start on, and a turn's prompt and answer are the beginning of the next turn's prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from kvbench.trace.formats.documents import BadValue
from kvbench.trace.schema import canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.texttokens import TokenRule, Tokens

ANSWER_ROLE = "assistant"
ROLES = {"human": "user", "gpt": ANSWER_ROLE, "chatgpt": ANSWER_ROLE, "bing": ANSWER_ROLE, "bard": ANSWER_ROLE}
"""Names of roles in ShareGPT and its kin."""

KEPT_PIECES = 2048
KEPT_CHARACTERS = 1 << 24
"""Turns of a conversation repeat its messages; of so many the tokens are kept."""

_TEXT_PARTS = ("text", "input_text", "output_text")


class ChatText:
    """Encodes the messages of one member with ``rule``; ``log`` counts what cannot be told in tokens."""

    def __init__(self, rule: TokenRule, log: ReadLog) -> None:
        self._rule = rule
        self._log = log
        self._known: dict[str, Tokens] = {}
        self._characters = 0

    def prompt(self, messages: Any, tools: Any = None) -> Tokens:
        """The tokens of a prompt: tools (as JSON) first, then the messages, then the mark of the answer.

        Raises BadValue where ``messages`` is no list of messages, or empty.
        """
        if not isinstance(messages, list) or not messages:
            raise BadValue("messages", messages, "must be a list of messages, at least one")
        pieces = [self._encode(mark("tools")), self._encode(json_text("tools", tools))] if tools else []
        for message in messages:
            pieces += self.message(message)
        return joined([*pieces, self._encode(mark(ANSWER_ROLE))])

    def message(self, message: Any) -> list[Tokens]:
        """The tokens of a message: mark, content."""
        if not isinstance(message, dict):
            raise BadValue("messages", message, "must be objects, each with role and content")
        role = message.get("role", message.get("from"))
        if not isinstance(role, str):
            raise BadValue("role", role, "must be text")
        return [self._encode(mark(ROLES.get(role, role))), self._encode(self.content(message))]

    def content(self, message: dict[str, Any]) -> str:
        """The text of a message: its content, and its calls of tools as JSON. Raises BadValue."""
        content = message.get("content", message.get("value", message.get("parts")))
        text = self._content_text(content)
        if calls := message.get("tool_calls"):
            text += json_text("tool_calls", _without_ids(calls))
        return text

    def answer(self, message: dict[str, Any]) -> Tokens:
        """The tokens of an answer, which is a message or looks like one."""
        return self._encode(self.content(message))

    def _content_text(self, content: Any) -> str:
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        if isinstance(content, list):
            return "".join(map(self._part_text, content))
        raise BadValue("content", content, "must be text or a list of parts")

    def _part_text(self, part: Any) -> str:
        if isinstance(part, str):
            return part
        if not isinstance(part, dict):
            raise BadValue("content", part, "must be text or a list of parts")
        kind = part.get("type")
        text = part.get("text", part.get("content"))
        if isinstance(text, str) and (kind is None or kind in _TEXT_PARTS):
            return text
        if "data" not in part and "image_url" not in part and "input_audio" not in part:
            return json_text("content", part)
        # An image is tokens too, and how many nobody says: told apart from others, and counted as few.
        self._log.ignored_fields[f"content of type {kind}"] += 1
        return mark(f"{kind} {blake3(json_text('content', part).encode('utf-8', 'surrogatepass')).hexdigest(8)}")

    def _encode(self, text: str) -> Tokens:
        tokens = self._known.get(text)
        if tokens is None:
            if len(self._known) == KEPT_PIECES or self._characters > KEPT_CHARACTERS:
                self._known.clear()
                self._characters = 0
            tokens = self._known[text] = self._rule.encode(text)
            self._characters += len(text)
        return tokens


def mark(role: str) -> str:
    """What stands before a message."""
    return f"<|{role}|>\n"


def joined(pieces: Sequence[Tokens]) -> Tokens:
    """Token ids one after another."""
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint32)


def json_text(name: str, value: Any) -> str:
    """A value of a document as text, equal for equal values. Raises BadValue for one that is nested too deeply."""
    try:
        return canonical_json(value)
    except RecursionError:
        raise BadValue(name, type(value).__name__, "is nested too deeply") from None


def _without_ids(calls: Any) -> Any:
    """Calls of tools without the names that a server gives to each, which no template shows a model."""
    if not isinstance(calls, list):
        return calls
    return [
        {key: value for key, value in call.items() if key != "id"} if isinstance(call, dict) else call for call in calls
    ]
