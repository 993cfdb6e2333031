"""Files of remote stores, through fsspec."""

from __future__ import annotations

import re
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from kvbench.errors import ConfigError, TraceError, one_line
from kvbench.trace.formats.text import Lines
from kvbench.trace.toldfile import ToldFile

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::[A-Za-z][A-Za-z0-9+.-]+)*://.")
"""A scheme of two letters at least: one letter is a drive of Windows."""


def is_remote(source: str) -> bool:
    """Whether ``source`` is an address, such as ``s3://bucket/trace.jsonl``, and no path."""
    return ADDRESS.match(source) is not None


def remote_files(address: str) -> tuple[bool, list[Lines]]:
    """Whether ``address`` stands for several files, and these: of a folder, a glob, or one file.

    Raises ConfigError where fsspec or the driver of the store is not installed, TraceError where the
    store cannot be reached or has no such file.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise _missing(address, "fsspec is not installed") from None
    try:
        store, path = url_to_fs(address)
    except ImportError as error:
        raise _missing(address, str(error)) from None
    except ValueError as error:
        raise TraceError(f"{address}: is no address of a known store: {error}") from None
    if "*" in path:
        return True, [_member(store, name) for name in _asked(address, lambda: store.glob(path))]
    if not address.startswith("http") and _asked(address, lambda: store.isdir(path)):
        return True, [_member(store, name) for name in _asked(address, lambda: store.find(path))]
    return False, [_member(store, path, address)]


def _member(store: Any, path: str, address: str | None = None) -> Lines:
    name = store.unstrip_protocol(path) if address is None else address
    opens = partial(store.open, path, "rb")
    return Lines(None, name=name, opens=lambda: cast("IO[bytes]", ToldFile(opens)))


def _asked(address: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        # Each driver has errors of its own.
        raise TraceError(f"{address}: cannot be read: {one_line(error)}") from error


def _missing(address: str, why: str) -> ConfigError:
    return ConfigError(f"{address}: {why}; reading from remote stores needs pip install 'kvbench[remote]'")
