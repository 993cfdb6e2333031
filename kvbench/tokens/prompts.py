"""The tokens of one prompt: typed, from a file, or from a row of a trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError, TraceError, reason
from kvbench.tokens.arrays import token_array
from kvbench.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path

    from kvbench.tokens.arrays import Tokens


def parse_tokens(text: str, where: str) -> Tokens:
    """The token ids in ``text``: a JSON list, or numbers set apart by spaces, commas and new lines.

    ``where``  what to call the text in messages.

    Raises ConfigError for anything else, ArgumentError for a number that is no token id.
    """
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where} is not a JSON list of token ids: {error}") from None
        return token_array(found)
    words = text.replace(",", " ").split()
    try:
        numbers = [int(word) for word in words]
    except ValueError as error:
        raise ConfigError(f"{where} is not a list of token ids: {error}") from None
    return token_array(numbers)


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
