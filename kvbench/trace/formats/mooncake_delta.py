"""Mooncake JSONL whose later rows of a session hold the new part of the prompt only.

A prompt is then that of the turn before, its answer, and what the row says is new: Dynamo's
``mooncake-delta``, and what AIPerf makes of rows with one ``session_id``. The parts of a prompt need not
begin where a block does, so blocks get ids of their own: a hash of the whole prefix up to their end,
told by the ids of the parts, and by session and turn of answers that the file does not tell.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blake3 import blake3

from kvbench.trace.failures import Phrase
from kvbench.trace.formats.fields import MAX_MADE_IDS, BadValue
from kvbench.trace.formats.mooncake import BLOCK_TOKENS, MooncakeFormat, Row, Sessions
from kvbench.trace.schema import TraceFacts
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.mooncake_line import Line

PIECE = struct.Struct("<16sQQ")


class MooncakeDeltaFormat(MooncakeFormat):
    """See the module; ``block_tokens`` is the size of the blocks that the ids stand for."""

    _whole_prompts = False

    def __init__(self, block_tokens: int = BLOCK_TOKENS) -> None:
        super().__init__()
        self._block_tokens = block_tokens

    def sniff(self, head: bytes, name: str) -> bool:
        """Never: a file does not say whether its rows hold whole prompts."""
        return False

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._block_tokens, source_format="mooncake-delta")

    def _sessions(self, log: ReadLog) -> Sessions:
        sessions: Sessions = log.carried.setdefault("sessions", _DeltaSessions(log, self._block_tokens))
        return sessions


class _DeltaSessions(Sessions):
    """Adds up the prompts of each session."""

    def __init__(self, log: ReadLog, block_tokens: int) -> None:
        super().__init__(log)
        self._block_tokens = block_tokens
        self._prompts: dict[str, _Prompt] = {}

    def row(self, line: Line, where: str) -> Row:
        row = super().row(line, where)
        own = row.block_ids
        wanted = -(-row.input_tokens // self._block_tokens)
        if own is not None and len(own) != wanted:
            rule = f"{row.input_tokens:,} new tokens in blocks of {self._block_tokens:,} make {wanted:,}"
            raise BadValue("hash_ids", Phrase(f"{len(own):,} ids"), rule)
        prompt = _Prompt(self._block_tokens) if row.session_id is None else self._prompt_of(row.session_id)
        prompt.answered()
        if prompt.own and own is not None and own[: len(prompt.own)] == prompt.own:
            self._warn(where)
        prompt.tokens += row.input_tokens
        if prompt.tokens > MAX_TOKENS or (own is not None and prompt.tokens > MAX_MADE_IDS * self._block_tokens):
            rule = f"makes a prompt of {prompt.tokens:,} tokens with those of the turns before, which is too long"
            raise BadValue("input_length", row.input_tokens, rule)
        for at, id in enumerate(own or ()):
            used = min(self._block_tokens, row.input_tokens - at * self._block_tokens)
            prompt.add(b"id" + struct.pack("<Q", id), used)
        prompt.own = own
        prompt.answer = (_answer_name(row), row.output_tokens or 0)
        return row._replace(input_tokens=prompt.tokens, block_ids=None if own is None else prompt.ids())

    def _prompt_of(self, session: str) -> _Prompt:
        return self._prompts.setdefault(session, _Prompt(self._block_tokens))

    def _warn(self, where: str) -> None:
        start = "rows begin with all ids of the turn before"
        if not any(note.startswith(start) for note in self._log.notes):
            self._log.notes.append(
                f"{start}, {where} first: they look like whole prompts, which --format mooncake reads"
            )


def _answer_name(row: Row) -> bytes:
    """What tells the answer of a row from all others: its tokens, or where it stands."""
    if row.output_token_ids is not None:
        return b"tokens" + array("I", row.output_token_ids).tobytes()
    return b"turn" + struct.pack("<Q", row.turn or 0) + (row.session_id or "").encode()


@dataclass(slots=True)
class _Prompt:
    """The prompt of a session so far: the ids of its full blocks, and the pieces of the block that is not full."""

    block_tokens: int
    tokens: int = 0
    own: list[int] | None = None
    answer: tuple[bytes, int] | None = None
    _full: array[int] = field(default_factory=lambda: array("Q"))
    _chain: bytes = b""
    _pieces: bytes = b""
    _filled: int = 0

    def answered(self) -> None:
        """Add the answer to the turn before, if there was one."""
        if self.answer is None:
            return
        name, tokens = self.answer
        self.tokens += tokens
        self.answer = None
        if self.own is not None and self.tokens <= MAX_MADE_IDS * self.block_tokens:
            self.add(name, tokens)

    def add(self, name: bytes, tokens: int) -> None:
        """Add the first ``tokens`` tokens of what is called ``name``."""
        source = blake3(name).digest(16)
        start = 0
        while start < tokens:
            taken = min(tokens - start, self.block_tokens - self._filled)
            self._pieces += PIECE.pack(source, start, taken)
            self._filled += taken
            start += taken
            if self._filled == self.block_tokens:
                self._chain = self._hash()
                self._full.append(_id(self._chain))
                self._pieces, self._filled = b"", 0

    def ids(self) -> array[int]:
        """One id a block, the last one included that is not full."""
        return self._full + array("Q", [_id(self._hash())]) if self._filled else self._full[:]

    def _hash(self) -> bytes:
        return blake3(self._chain + self._pieces).digest(16)


def _id(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "little")
