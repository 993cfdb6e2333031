"""What formats of text have in common: the rule for tokens, rows with token ids, and what a log says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from kvbench.trace.formats import ROW_COLUMN, TraceFormat
from kvbench.trace.formats.documents import BadValue
from kvbench.trace.formats.texttokens import make_rule
from kvbench.trace.schema import TraceFacts, make_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.texttokens import Tokens

ROWS_PER_BATCH = 1024
TOKENS_PER_BATCH = 1 << 20

_SCHEMA = make_schema(
    {
        "arrival_ns",
        "input_tokens",
        "output_tokens",
        "token_ids",
        "request_id",
        "session_id",
        "turn",
        "think_time_ns",
        "model",
        "output_token_ids",
    }
).append(pa.field(ROW_COLUMN, pa.uint64()))


@dataclass(slots=True)
class TextRow:
    """A request of a text trace; ``row`` is its line or element in the member, from 1.

    ``output`` is None where the answer's text is unknown; ``output_tokens`` may still be known then.
    """

    arrival_ns: int
    prompt: Tokens
    row: int
    output: Tokens | None = None
    output_tokens: int | None = None
    request_id: str | None = None
    session_id: str | None = None
    turn: int | None = None
    think_time_ns: int | None = None
    model: str | None = None

    @property
    def answer_tokens(self) -> int | None:
        return self.output_tokens if self.output is None else len(self.output)


class TextFormat(TraceFormat):
    """A format whose rows hold text; ``rule`` makes it token ids.

    Takes the parameters of :data:`kvbench.builtin_texts.TOKEN_PARAMS`. Raises ConfigError for a rule
    that contradicts itself or cannot be loaded.
    """

    name: ClassVar[str]

    def __init__(
        self,
        *,
        tokenizer: str | None = None,
        bytes_per_token: int | None = None,
        characters_per_token: int | None = None,
    ) -> None:
        self.rule = make_rule(tokenizer, bytes_per_token, characters_per_token)

    def facts(self) -> TraceFacts:
        return TraceFacts(id_scope="global", source_format=f"{self.name},{self.rule.label}")

    def batches(self, rows: Iterable[TextRow], log: ReadLog) -> Iterator[pa.RecordBatch]:
        """``rows`` as batches; notes the rule."""
        note(log, "tokens", self.rule.sentence)
        waiting: list[TextRow] = []
        tokens = 0
        for row in rows:
            waiting.append(row)
            tokens += len(row.prompt) + (0 if row.output is None else len(row.output))
            if len(waiting) == ROWS_PER_BATCH or tokens >= TOKENS_PER_BATCH:
                yield _batch(waiting)
                waiting, tokens = [], 0
        if waiting:
            yield _batch(waiting)


class Usage:
    """Compares the prompt lengths that a log states with those of the rule; tells it in a note."""

    def __init__(self) -> None:
        self._rows = 0
        self._stated = 0
        self._counted = 0

    def see(self, stated: int | None, counted: int, log: ReadLog) -> None:
        """A prompt of ``counted`` tokens, of which the log says that they are ``stated``."""
        if stated is None or stated < 1:
            return
        self._rows += 1
        self._stated += stated
        self._counted += counted
        note(
            log,
            "usage",
            f"in {self._rows:,} rows the log states the length of the prompt: {self._stated:,} tokens in all, where "
            f"the rule counts {self._counted:,} ({self._counted / self._stated:.0%})",
        )


def note(log: ReadLog, subject: str, sentence: str) -> None:
    """Add a sentence to what a reader of results should know, in place of an earlier one on the subject."""
    before = log.carried.get(f"note on {subject}")
    if before is None:
        log.notes.append(sentence)
    elif before != sentence:
        log.notes[log.notes.index(before)] = sentence
    log.carried[f"note on {subject}"] = sentence


def optional_text(name: str, value: Any) -> str | None:
    """A text or a number as text; None for nothing. Raises BadValue for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadValue(name, value, "must be text")
    # JSON can name code points that are no characters, which no Arrow string can hold.
    return str(value).encode("utf-8", "backslashreplace").decode()


def required_text(name: str, value: Any) -> str:
    """A text. Raises BadValue for anything else."""
    if not isinstance(value, str):
        raise BadValue(name, value, "is missing; it must be text" if value is None else "must be text")
    return value


def optional_count(name: str, value: Any, most: int) -> int | None:
    """A whole number from 0 to ``most``, or None. Raises BadValue for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadValue(name, value, f"must be a whole number from 0 to {most:,}")
    return value


def _batch(rows: list[TextRow]) -> pa.RecordBatch:
    columns = {
        "arrival_ns": [row.arrival_ns for row in rows],
        "input_tokens": [len(row.prompt) for row in rows],
        "output_tokens": [row.answer_tokens for row in rows],
        "request_id": [row.request_id for row in rows],
        "session_id": [row.session_id for row in rows],
        "turn": [row.turn for row in rows],
        "think_time_ns": [row.think_time_ns for row in rows],
        "model": [row.model for row in rows],
        ROW_COLUMN: [row.row for row in rows],
    }
    lists = {
        "token_ids": _lists([row.prompt for row in rows]),
        "output_token_ids": _lists([row.output for row in rows]),
    }
    arrays = [
        lists[field.name] if field.name in lists else pa.array(columns[field.name], field.type) for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _lists(rows: list[Tokens | None]) -> pa.Array:
    lengths = [0 if row is None else len(row) for row in rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = [row for row in rows if row is not None]
    flat = np.concatenate(values) if values else np.zeros(0, np.uint32)
    missing = pa.array([row is None for row in rows])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, pa.uint32()), mask=missing)
