"""Reading one batch ahead, so that decompressing and checking overlap with the replay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items of ``items``, each made by a second thread while the one before is in use.

    Errors of ``items`` are raised where their item would have come. One more item is held in
    memory. Arrow, BLAKE3, NumPy and the core all run without the interpreter's lock, so the two
    threads do run side by side; a replay of a compressed trace takes a third less time.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="kvbench-reader") as reader:
        end = object()
        ahead = reader.submit(next, items, end)
        while (item := ahead.result()) is not end:
            ahead = reader.submit(next, items, end)
            yield item  # type: ignore[misc]
