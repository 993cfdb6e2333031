"""JSON documents of a member: one a line, one after another, or the elements of one long list.

A list may be far larger than memory (ShareGPT is one), so it is read element by element.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kvbench.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.text import Lines

MAX_DOCUMENT_CHARACTERS = 1 << 28
"""A single conversation or span file beyond this is taken for damage, not read into memory."""

_CHUNK_BYTES = 1 << 20
_SPACE = " \t\r\n"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_NAMED = re.compile(r"\s*:\s*(\S)")
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class BadValue(Exception):
    """A value of a document breaks a rule: field, value, rule."""


def decode_line(line: bytes) -> Any:
    """The JSON value of a line. Raises BadValue."""
    try:
        return msgspec.json.decode(line)
    except RecursionError:
        raise BadValue("line", line[:200].decode("utf-8", "replace"), "is nested too deeply") from None
    except _UNDECODABLE as error:
        text = line.decode("utf-8", "replace")
        raise BadValue("line", text, f"is not valid JSON: {error}") from None


def documents(lines: Lines, log: ReadLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each JSON object of a member with its number from 1: of the line, or of the list's element.

    A line that is no JSON object goes to ``log.refuse``; damage inside a list or a document of
    several lines raises TraceError, for where the next one starts is unknown.
    """
    found = _by_line(lines, log) if is_by_line(lines.head()) else _by_value(lines)
    for number, value in found:
        if isinstance(value, dict):
            yield number, value
        else:
            log.refuse(TraceError.at(lines.name, number, "document", value, "must be a JSON object"))


def is_by_line(head: bytes) -> bool:
    """Whether a text with these first bytes has one JSON document a line.

    A first line that is longer than the head tells nothing; objects are then one a line.
    """
    text = head.lstrip()
    if text.startswith(b"["):
        return False
    first, newline, _ = text.partition(b"\n")
    if not newline:
        return True
    try:
        msgspec.json.decode(first)
    except _UNDECODABLE:
        # A damaged line ends like an object; the first line of an object over several does not.
        return first.rstrip().endswith(b"}")
    return True


class Outline(NamedTuple):
    """What the first bytes of a text show of its first object, for sniffing.

    ``starts``  for each name at its top the first character of the value (``"``, ``[``, ``{`` or another).
    ``whole``   the object ends within these bytes.
    """

    starts: dict[str, str]
    whole: bool


def outline(head: bytes) -> Outline:
    """The first object in ``head``, which may be one of a list and may be cut off anywhere."""
    text = head.decode("utf-8", "ignore").lstrip(_SPACE + "[")
    starts: dict[str, str] = {}
    if not text.startswith("{"):
        return Outline(starts, False)
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
            if depth == 0:
                return Outline(starts, True)
        elif depth == 1 and (value := _NAMED.match(text, token.end())):
            starts[mark[1:-1]] = value[1]
    return Outline(starts, False)


def _by_line(lines: Lines, log: ReadLog) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        try:
            yield number, decode_line(line)
        except BadValue as bad:
            log.refuse(TraceError.at(lines.name, number, *bad.args))


def _by_value(lines: Lines) -> Iterator[tuple[int, Any]]:
    reader = _Values(lines)
    number = 0
    while reader.more():
        number += 1
        yield number, reader.value(number)


class _Values:
    """Reads JSON values from a member one by one; commas and brackets of an outer list are passed over."""

    def __init__(self, lines: Lines) -> None:
        self._name = lines.name
        self._file = lines.open()
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._decoder = json.JSONDecoder(parse_constant=_no_number)
        self._text = ""
        self._at = 0
        self._ended = False
        self._between = _SPACE + "["

    def more(self) -> bool:
        """Whether another value follows; goes to its start."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in self._between:
                self._at += 1
            if self._at < len(self._text):
                self._between = _SPACE + ",]"
                return True
            if self._ended:
                return False
            self._fill(_CHUNK_BYTES)

    def value(self, number: int) -> Any:
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
                return value
            except RecursionError:
                raise TraceError(f"{self._name}, row {number}: is nested too deeply") from None
            except ValueError as error:
                waiting = len(self._text) - self._at
                if self._ended or waiting > MAX_DOCUMENT_CHARACTERS:
                    raise TraceError(
                        f"{self._name}, row {number}: is not valid JSON: {getattr(error, 'msg', error)}, "
                        "and where the next row starts cannot be known"
                    ) from None
            # As much again, so that a long value is not parsed from its start too often.
            self._fill(max(_CHUNK_BYTES, waiting))

    def _fill(self, size: int) -> None:
        data = self._file.read(size)
        self._ended = not data
        try:
            text = self._utf8.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise TraceError(f"{self._name}: is not UTF-8: {error}") from None
        self._text = self._text[self._at :] + text
        self._at = 0


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
