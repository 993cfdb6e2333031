"""A file of somebody else's library, whose every error is an OSError."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from kvbench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable


class ToldFile(io.RawIOBase):
    """The file that ``opens`` gives; what the library raises, now and while it is read, becomes an OSError.

    The drivers of stores and the readers of archives raise errors of all kinds for a source that is
    damaged, locked or gone, and none of them means anything else.
    """

    def __init__(self, opens: Callable[[], Any]) -> None:
        self._file = _told(opens)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = _told(lambda: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            _told(self._file.close)
        super().close()


def _told(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OSError:
        raise
    except Exception as error:
        raise OSError(one_line(error)) from error
