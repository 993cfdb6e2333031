"""What will be asked for next: one pass over a trace, kept in a temporary file.

Four bytes for each block of each request would not fit in memory for long traces, so they lie in
an unnamed file that is mapped; its pages are given back after each batch.
"""

from __future__ import annotations

import mmap
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from kvbench.replays.belady import NextUses

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from kvbench.replays.keyed import KeyedTrace

    Int32s = npt.NDArray[np.int32]

BYTES = np.dtype(np.int32).itemsize
FIRST_ENTRIES = 1 << 20


class Future:
    """The next use of every block of every request of ``keyed``, found when this is made.

    ``requests``  number of requests.
    ``take``      gives them out in trace order, once.
    """

    def __init__(self, keyed: KeyedTrace) -> None:
        self._file = tempfile.TemporaryFile(prefix="kvbench-")  # noqa: SIM115 -- closed by close()
        self._map: mmap.mmap | None = None
        self._entries = 0
        self._taken = 0
        with ExitStack() as until_whole:
            until_whole.callback(self.close)
            self.requests = self._pass(keyed)
            until_whole.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, count: int) -> Int32s:
        """The next uses of the next ``count`` blocks; good until the next call."""
        self._give_back()
        taken = self._array()[self._taken : self._taken + count]
        self._taken += count
        return taken

    def close(self) -> None:
        """Give the file back."""
        self._map = None
        self._file.close()

    def _pass(self, keyed: KeyedTrace) -> int:
        """Find all next uses; the number of requests."""
        found = NextUses()
        numbering = keyed.numbering()
        for item in keyed.batches():
            self._fit(found.accesses + len(item.keys.keys))
            found.note(numbering.ids(item.keys), item.keys.offsets, item.keys.cacheable, self._array())
            self._give_back()
        return found.requests

    def _array(self) -> Int32s:
        return np.frombuffer(self._map, dtype=np.int32) if self._map is not None else np.zeros(0, np.int32)

    def _fit(self, entries: int) -> None:
        if entries <= self._entries:
            return
        self._entries = max(entries, 2 * self._entries, FIRST_ENTRIES)
        self._file.truncate(self._entries * BYTES)
        self._map = mmap.mmap(self._file.fileno(), self._entries * BYTES)

    def _give_back(self) -> None:
        # Otherwise the pages of the file count as memory of this process until it ends.
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
