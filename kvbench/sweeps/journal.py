"""What a sweep has found so far: a line a cell, beside the table that is written at the end."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import msgspec

from kvbench.errors import OutputError, reason

if TYPE_CHECKING:
    from types import TracebackType

SUFFIX = ".journal"

Method = Literal["replay", "curve"]


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a cell that has run.

    ``config_hash``  of all that decides it.
    ``method``       ``replay``, or ``curve``: the exact LRU curve answered it, which has not all figures.
    ``error``        why it failed.
    ``summary``      its figures.
    """

    config_hash: str
    method: Method
    status: Literal["done", "failed"]
    error: str | None = None
    summary: dict[str, Any] | None = None


class Journal:
    """The journal of the sweep that writes ``output``: ``output.journal``, a JSON line a cell that is done.

    Only one process may have it open. A last line that was cut short counts for nothing; the cell is run again.
    """

    def __init__(self, output: str) -> None:
        self.path = Path(f"{output}{SUFFIX}")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        try:
            while self._file is None:
                self._file = self.path.open("a+b")
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not self._is_there():
                    self._close()
        except BlockingIOError:
            self._close()
            raise OutputError(f"{self.path} is in use: another sweep is writing there") from None
        except OSError as error:
            self._close()
            raise OutputError(f"{self.path} cannot be written: {reason(error)}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        if self._file is not None and os.fstat(self._file.fileno()).st_size == 0 and self._is_there():
            self.remove()
        self._close()

    def read(self) -> list[CellRecord]:
        """The cells that are done."""
        assert self._file is not None
        self._file.seek(0)
        text = self._file.read()
        if text and not text.endswith(b"\n"):
            self._file.truncate(text.rfind(b"\n") + 1)  # what is added begins on a line of its own
        records = []
        for line in text.splitlines():
            with suppress(msgspec.MsgspecError):
                records.append(msgspec.json.decode(line, type=CellRecord))
        return records

    def add(self, record: CellRecord) -> None:
        """Write down a cell that is done."""
        assert self._file is not None
        try:
            self._file.write(msgspec.json.encode(record) + b"\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {reason(error)}") from None

    def clear(self) -> None:
        """Forget all."""
        assert self._file is not None
        self._file.truncate(0)

    def remove(self) -> None:
        """The sweep is complete, or has nothing to remember."""
        with suppress(OSError):
            self.path.unlink()

    def _is_there(self) -> bool:
        """Whether the file that is open is still the one at ``path``: a sweep that ends removes its journal, which
        another may have opened just before."""
        assert self._file is not None
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
