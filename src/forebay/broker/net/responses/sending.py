"""Sending the parts of responses through a stream: bytes from memory, and ranges of files.

A range goes out without being read into Python, by the system's sendfile (`net/sockets.py`). Both functions
raise BlockingIOError when the stream takes nothing, and OSError when it is broken or when a file is shorter
than the range.
"""

from __future__ import annotations

from forebay.broker.ports import Stream
from forebay.wire.parts import FileRange, Part


def send_bytes(stream: Stream, output: list[Part]) -> None:
    """Send the parts in front that are in memory, with one call; remove from the list what is sent."""
    data, count, send = output[0], 1, stream.send
    if len(output) > 1:
        count = _in_memory(output)
        if count > 1:
            data = b"".join(output[:count])  # type: ignore[arg-type]
        if count < len(output):
            send = stream.send_and_more
    assert not isinstance(data, FileRange)
    sent = send(data)
    if sent < len(data):
        output[:count] = [memoryview(data)[sent:]]
    else:
        del output[:count]


def _in_memory(output: list[Part]) -> int:
    """How many parts there are before the first range."""
    count = 0
    for part in output:
        if isinstance(part, FileRange):
            break
        count += 1
    return count


def send_range(stream: Stream, output: list[Part], part: FileRange) -> None:
    """Send the range in front, as far as the stream takes it; remove from the list what is sent."""
    sent = stream.send_file(part)
    if sent == 0:
        raise OSError("the file ends before the range does")
    if sent < part.length:
        output[0] = FileRange(part.file, part.position + sent, part.length - sent)
    else:
        del output[0]


def memory(parts: list[Part]) -> int:
    """The memory of a response, near enough: its first part. File ranges follow, which stay in their file."""
    first = parts[0] if parts else b""
    return 0 if isinstance(first, FileRange) else len(first)
