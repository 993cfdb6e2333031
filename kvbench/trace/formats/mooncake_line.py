"""One line of Mooncake JSONL: the fields of all its variants, and what is said of a line that is bad."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.trace.formats.fields import BadValue, decoded, whole

if TYPE_CHECKING:
    from kvbench.trace.formats import ReadLog

ALIASES = {
    "timestamp": "created_time",
    "input_length": "input_tokens",
    "output_length": "output_tokens",
    "delay": "delay_ms",
}
TEXT_FIELDS = ("text_input", "messages", "payload")
IGNORED_FIELDS = (
    "tools",
    "extra",
    "message_mode",
    "strict_priority",
    "policy_class",
    "branches",
    "prefix_reset",
    "tool_events",
    "type",
)

_Milliseconds = int | float | None


class Line(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: _Milliseconds = None
    created_time: _Milliseconds = None
    input_length: int | None = None
    input_tokens: int | None = None
    output_length: int | None = None
    output_tokens: int | None = None
    hash_ids: list[int] | None = None
    session_id: int | str | None = None
    delay: _Milliseconds = None
    delay_ms: _Milliseconds = None
    request_id: int | str | None = None
    priority: int | None = None
    output_token_ids: list[int] | None = None
    text_input: Any = None
    messages: Any = None
    payload: Any = None
    tools: Any = None
    extra: Any = None
    message_mode: Any = None
    strict_priority: Any = None
    policy_class: Any = None
    wait_for: list[int | str] | int | str | None = None
    branches: Any = None
    prefix_reset: Any = None
    tool_wait_ms: _Milliseconds = None
    tool_events: Any = None
    type: Any = None


def decode_line(decoder: msgspec.json.Decoder[Line], line: bytes, log: ReadLog) -> Line:
    """The fields of a line; unused ones are counted in ``log``. Raises BadValue."""
    try:
        row = decoded(decoder, line)
    except BadValue as bad:
        if unknown := re.search(r"unknown field `(.*)`", bad.args[2]):
            known = ", ".join(Line.__struct_fields__)
            raise BadValue("field", unknown.group(1), f"is unknown; known are {known}") from None
        raise
    _refuse_repeats(row, line)
    for name in IGNORED_FIELDS:
        if getattr(row, name) is not None:
            log.ignored_fields[name] += 1
    return row


def _refuse_repeats(row: Line, line: bytes) -> None:
    """Raises BadValue for a line with a field that stands twice, of which the decoder took the last."""
    values = [value for value in msgspec.structs.astuple(row) if value is not None]
    texts = sum(isinstance(value, str) for value in values)
    if line.count(b'"') == 2 * (len(values) + texts):
        return
    # Quotes that these fields do not explain: in a text or something nested, of a null, or of a repeated field.
    pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list, parse_int=str, parse_float=str)
    names = [name for name, _ in pairs]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise BadValue("field", name, "stands twice in the line")


def aliased(line: Line, name: str) -> Any:
    """The value of a field that has two names. Raises BadValue if both are there."""
    value, alias = getattr(line, name), getattr(line, ALIASES[name])
    if value is not None and alias is not None:
        raise BadValue(ALIASES[name], alias, f"is another name of {name}, which is there too")
    return alias if value is None else value


def required_length(line: Line) -> int:
    """The tokens of the prompt. Raises BadValue where they are missing."""
    tokens = aliased(line, "input_length")
    if tokens is not None:
        return whole("input_length", tokens)
    for name in TEXT_FIELDS:
        if getattr(line, name) is not None:
            rule = (
                f"the row has {name} instead, and text has no length in tokens until it is tokenised: give the length"
                + (", or a rule, as in --format mooncake,bytes_per_token=4" if name == "text_input" else "")
            )
            raise BadValue("input_length", None, rule)
    raise BadValue("input_length", None, "is missing")


def check_ids(name: str, ids: list[int] | None, high: int) -> None:
    """Raises BadValue for an id that is negative or above ``high``."""
    if ids and (min(ids) < 0 or max(ids) > high):
        value = next(value for value in ids if not 0 <= value <= high)
        raise BadValue(name, value, f"must be from 0 to {high}")
