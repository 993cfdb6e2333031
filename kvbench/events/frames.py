"""Files of frames, and the ZMQ messages that vLLM's events travel in.

A frame is its length (4 bytes, big-endian) and as many bytes of msgpack. LMCache's recorder writes maps in
such frames; a capture of vLLM's events has an array with the parts of one ZMQ message in each.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from kvbench.errors import TraceError, reason, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LENGTH = struct.Struct(">I")
SEQUENCE = struct.Struct(">Q")
MAX_FRAME_BYTES = 2**28
"""Longer frames are taken for damage, before memory is asked for them."""

END_OF_REPLAY = b"\xff" * 8
"""The sequence number with which vLLM's replay socket ends its answer."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """``path`` to be read from its start, decompressed if its name says that it is compressed."""
    try:
        with pa.input_stream(str(path)) as file:
            yield file
    except OSError as error:
        raise TraceError(f"cannot be read: {' '.join(reason(error).split())}") from None


def read_frames(path: Path) -> Iterator[Any]:
    """What is in each frame of a file, decoded. Raises TraceError, naming the frame."""
    with opened(path) as file:
        number = 0
        while head := file.read(LENGTH.size):
            size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else None
            if size is not None and size > MAX_FRAME_BYTES:
                raise TraceError(f"frame {number} is said to have {size:,} bytes; the file is damaged")
            body = b"" if size is None else file.read(size)
            if len(body) != size:
                raise TraceError(f"frame {number} is cut short")
            try:
                yield msgspec.msgpack.decode(body)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                raise TraceError(f"frame {number} is no msgpack: {error}") from None
            number += 1


def write_frame(file: IO[bytes], content: object) -> None:
    """Append a frame."""
    body = msgspec.msgpack.encode(content)
    file.write(LENGTH.pack(len(body)) + body)


def message(topic: str, sequence: int, payload: bytes) -> list[bytes]:
    """The parts of the ZMQ message that publishes a batch."""
    return [topic.encode(), SEQUENCE.pack(sequence), payload]


def open_message(parts: Sequence[object]) -> tuple[str, int, bytes] | None:
    """Topic, sequence number and payload of a message; None for the one that ends a replay.

    Parts are taken from the back: a replay's answers have an empty one in front, and no topic before
    vLLM 0.28. Raises TraceError for what is no such message.
    """
    if len(parts) < 2 or not all(isinstance(part, bytes) for part in parts):
        raise TraceError(f"{shorten(list(parts))} is no message: topic, sequence number and payload are wanted")
    payload, number = bytes(parts[-1]), bytes(parts[-2])  # type: ignore[call-overload]
    if len(number) != SEQUENCE.size:
        raise TraceError(f"sequence number {shorten(number)} has {len(number)} bytes instead of {SEQUENCE.size}")
    if number == END_OF_REPLAY and not payload:
        return None
    topic = bytes(parts[-3]) if len(parts) > 2 else b""  # type: ignore[call-overload]
    try:
        return topic.decode(), SEQUENCE.unpack(number)[0], payload
    except UnicodeDecodeError:
        raise TraceError(f"topic {shorten(topic)} is no text") from None
