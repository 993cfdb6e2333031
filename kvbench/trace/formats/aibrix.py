"""AIBrix's workloads: a JSON line for each time, with all requests that go out then.

Prompts are text, of which only the length is read: there is nothing here that tells prompts apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.tablefiles import JsonTable, first_object
from kvbench.trace.formats.tabular import Broken, JsonPiece, Rows
from kvbench.trace.formats.values import TOKENS, Seconds, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

NAMES = {"Prompt Length": "prompt_length", "Output Length": "output_length"}
"""Old names of fields, and the new ones."""
COLUMNS = (("session_id", "session_id", as_text), ("model", "model", as_text))
USED = ("timestamp", "prompt", "prompt_length", "output_length", *(name for _, name, _ in COLUMNS))
PROMPT = "the prompt's text is not counted without a tokenizer; give bytes_per_token to estimate its length"


class AibrixFormat(TraceFormat):
    """See the module.

    ``bytes_per_token``  estimates the length of prompts that do not say theirs; 0: they are refused.
    """

    def __init__(self, bytes_per_token: float = 0.0) -> None:
        self._bytes_per_token = bytes_per_token
        self._estimated = 0

    def sniff(self, head: bytes, name: str) -> bool:
        row = first_object(head)
        if row is not None:
            return "timestamp" in row and isinstance(row.get("requests"), list)
        first = head.split(b"\n")[0]
        return first.lstrip().startswith(b"{") and b'"timestamp"' in first and b'"requests"' in first

    def facts(self) -> TraceFacts:
        return TraceFacts(source_format="aibrix")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        self._estimated = 0
        for piece in JsonTable(lines).pieces():
            rows = Rows(_requests(piece, log))
            rows.read("arrival_ns", "timestamp", Seconds(6), required=True)
            self._estimate(rows)
            rows.read("input_tokens", "prompt_length", TOKENS, required=True)
            rows.read("output_tokens", "output_length", TOKENS)
            for column, name, reader in COLUMNS:
                rows.read(column, name, reader)
            rows.piece.count(log.ignored_fields, USED)
            yield rows.batch(lines.name, log)
        if self._estimated:
            what = f"{self._bytes_per_token:g} bytes a token"
            log.notes.append(f"{lines.name}: {self._estimated:,} prompt lengths were estimated from {what}")

    def _estimate(self, rows: Rows) -> None:
        """Fill in, or refuse, lengths that are not there."""
        piece = rows.piece
        assert isinstance(piece, JsonPiece)
        for at, request in enumerate(piece.rows):
            prompt = request.get("prompt")
            if request.get("prompt_length") is not None or not isinstance(prompt, str):
                continue
            if not self._bytes_per_token:
                rows.refuse(at, "prompt_length", None, PROMPT)
                continue
            size = len(prompt.encode("utf-8", "surrogatepass"))
            request["prompt_length"] = max(1, round(size / self._bytes_per_token))
            self._estimated += 1


def _requests(piece: JsonPiece, log: ReadLog) -> JsonPiece:
    """A row for each request of each line."""
    numbers: list[int] = []
    rows: list[dict[str, Any]] = []
    broken = list(piece.broken)
    for number, line in zip(piece.numbers.tolist(), piece.rows, strict=True):
        log.ignored_fields.update(name for name in line if name not in ("timestamp", "requests"))
        requests = line.get("requests")
        if not isinstance(requests, list):
            broken.append(Broken(number, "requests", requests, "must be a list of requests"))
            continue
        for request in requests:
            if not isinstance(request, dict):
                broken.append(Broken(number, "requests", request, "must be an object, one request"))
                continue
            named: dict[str, Any] = {NAMES.get(str(name), str(name)): value for name, value in request.items()}
            rows.append({**named, "timestamp": line.get("timestamp")})
            numbers.append(number)
    return JsonPiece(np.array(numbers, np.uint64), rows, broken)
