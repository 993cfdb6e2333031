"""The tokens of one prompt: typed, from a file, or from a row of a trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError, TraceError, reason, shorten
from kvbench.tokens.arrays import token_array
from kvbench.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path

    from kvbench.tokens.arrays import Tokens


JSON_STARTS = ("[", "{", '"')
"""What a JSON document begins with that is not a bare number or word."""


def parse_tokens(text: str, where: str) -> Tokens:
    """The token ids in ``text``: a JSON list, or numbers set apart by spaces, commas and new lines.

    ``where``  what to call the text in messages.

    Raises ConfigError for anything else, ArgumentError for a number that is no token id.
    """
    if text.lstrip().startswith(JSON_STARTS):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where} is not a JSON list of token ids: {error}") from None
        if not isinstance(found, list):
            raise ConfigError(f"{where} is not a JSON list of token ids: it is {shorten(found)}")
        return token_array(found)
    return token_array([_number(word, where) for word in text.replace(",", " ").split()])


def _number(word: str, where: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ConfigError(
            f"{where} is not a list of token ids: {shorten(word)} is no whole number; give a JSON list, or numbers set "
            "apart by spaces, commas and new lines"
        ) from None


def read_tokens(path: Path) -> Tokens:
    """The token ids in a file; see :func:`parse_tokens`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None
    return parse_tokens(text, str(path))


def read_row(trace: str, row: int) -> Tokens:
    """The token ids of row ``row`` (from 1) of a trace. Raises TraceError if there are none."""
    opened = open_trace(trace)
    if "token_ids" not in opened.schema.names:
        raise TraceError(f"{trace} has no column token_ids, so it does not say what its prompts are")
    seen = 0
    for batch in opened.batches():
        if row <= seen + batch.num_rows:
            tokens = batch.column("token_ids")[row - seen - 1]
            if not tokens.is_valid:
                raise TraceError.at(trace, row, "token_ids", None, "a prompt is needed; choose another row")
            return token_array(tokens.values)
        seen += batch.num_rows
    raise TraceError(f"{trace} has {seen:,} rows, and row {row:,} was asked for")
