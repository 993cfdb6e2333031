"""One line of Mooncake JSONL: the fields of all its variants, and what is said of a line that is bad."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from kvbench.trace.formats import ReadLog

NS_PER_MS = 1_000_000
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
MAX_ID = 2**64 - 1
MAX_NS = 2**63 - 1
LIMITS = {"priority": (-(2**31), 2**31 - 1), "input_length": (0, MAX_TOKENS), "output_length": (0, MAX_TOKENS)}

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


class BadLine(Exception):
    """A value of the line breaks a rule: field, value, rule."""


def decode_line(decoder: msgspec.json.Decoder[Line], line: bytes, log: ReadLog) -> Line:
    """The fields of a line; unused ones are counted in ``log``. Raises BadLine."""
    try:
        row = decoder.decode(line)
    except msgspec.ValidationError as error:
        raise _explained(line, str(error)) from None
    except RecursionError:
        raise BadLine("line", line.decode("utf-8", "replace"), "is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = line.decode("utf-8", "replace")
        if re.search(r"\b(NaN|Infinity)\b", text):
            raise BadLine("line", text, "NaN and Infinity are no numbers of a trace (nor of JSON)") from None
        raise BadLine("line", text, f"is not valid JSON: {error}") from None
    _refuse_repeats(row, line)
    for name in IGNORED_FIELDS:
        if getattr(row, name) is not None:
            log.ignored_fields[name] += 1
    return row


def _refuse_repeats(row: Line, line: bytes) -> None:
    """Raises BadLine for a line with a field that stands twice, of which the decoder took the last."""
    values = [value for value in msgspec.structs.astuple(row) if value is not None]
    texts = sum(isinstance(value, str) for value in values)
    if line.count(b'"') == 2 * (len(values) + texts):
        return
    # Quotes that these fields do not explain: in a text or something nested, of a null, or of a repeated field.
    pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list, parse_int=str, parse_float=str)
    names = [name for name, _ in pairs]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise BadLine("field", name, "stands twice in the line")


def _explained(line: bytes, said: str) -> BadLine:
    """What a line of valid JSON has wrong, with the value that is wrong."""
    if unknown := re.search(r"unknown field `(.*)`", said):
        known = ", ".join(Line.__struct_fields__)
        return BadLine("field", unknown.group(1), f"is unknown; known are {known}")
    rule = said.split(" - at ")[0]
    rule = rule[0].lower() + rule[1:]
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return BadLine("line", line.decode("utf-8", "replace"), f"cannot be read: {rule}")
    path = re.search(r"at `\$\.(\w+)", said)
    if path is None:
        return BadLine("line", value, "must be a JSON object, one request")
    name = path.group(1)
    return BadLine(name, value.get(name), rule)


def aliased(line: Line, name: str) -> Any:
    """The value of a field that has two names. Raises BadLine if both are there."""
    value, alias = getattr(line, name), getattr(line, ALIASES[name])
    if value is not None and alias is not None:
        raise BadLine(ALIASES[name], alias, f"is another name of {name}, which is there too")
    return alias if value is None else value


def required_length(line: Line) -> int:
    """The tokens of the prompt. Raises BadLine where they are missing."""
    tokens = aliased(line, "input_length")
    if tokens is not None:
        check_limits("input_length", tokens)
        return int(tokens)
    for name in TEXT_FIELDS:
        if getattr(line, name) is not None:
            rule = (
                f"the row has {name} instead, and text has no length in tokens until it is tokenised: give the length"
                + (", or a rule, as in --format mooncake,bytes_per_token=4" if name == "text_input" else "")
            )
            raise BadLine("input_length", None, rule)
    raise BadLine("input_length", None, "is missing")


def check_limits(name: str, value: int | None) -> None:
    """Raises BadLine for a value outside of :data:`LIMITS`."""
    if value is None:
        return
    low, high = LIMITS[name]
    if not low <= value <= high:
        raise BadLine(name, value, f"must be from {low} to {high}")


def check_ids(name: str, ids: list[int] | None, high: int) -> None:
    """Raises BadLine for an id that is negative or above ``high``."""
    if ids and (min(ids) < 0 or max(ids) > high):
        value = next(value for value in ids if not 0 <= value <= high)
        raise BadLine(name, value, f"must be from 0 to {high}")


def nanoseconds(name: str, milliseconds: float | None, *, any_sign: bool = False) -> int | None:
    """Whole nanoseconds from milliseconds; exact for integers, rounded for fractions. Raises BadLine."""
    if milliseconds is None:
        return None
    if isinstance(milliseconds, float) and not math.isfinite(milliseconds):
        raise BadLine(name, milliseconds, "must be a finite number of milliseconds")
    if milliseconds < 0 and not any_sign:
        raise BadLine(name, milliseconds, "must not be negative")
    if abs(milliseconds) > MAX_NS // NS_PER_MS:
        raise BadLine(name, milliseconds, "is too large; times are counted in 64-bit nanoseconds")
    return round(milliseconds * NS_PER_MS)
