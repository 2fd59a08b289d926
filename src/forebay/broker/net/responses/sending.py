"""Sending the parts of responses through a stream: bytes from memory, and ranges of files.

A long range goes out without being read into Python, by the system's sendfile (`net/sockets.py`). A short one
is read, and leaves in one call with what is around it: that costs less than three calls, and the client wakes
up once, with the whole answer. What the stream does not take of it is not kept in memory, but read again.

`send_parts` raises BlockingIOError when the stream takes nothing, and OSError when it is broken or when a
file is shorter than the range.
"""

from __future__ import annotations

from forebay.broker.ports import Stream
from forebay.wire.parts import FileRange, Part

SHORT_RANGE_BYTES = 8 * 1024
"""With 16 KB, reading costs as much as the two calls that it saves."""
_JOINED_BYTES_MAX = 64 * 1024


def send_parts(stream: Stream, output: list[Part]) -> None:
    """Send parts in front with one call; remove from the list what is sent."""
    for part in output:
        if isinstance(part, FileRange):
            break
    else:
        _send_memory(stream, output)
        return
    first = output[0]
    if isinstance(first, FileRange) and first.length > SHORT_RANGE_BYTES:
        _send_range(stream, output, first)
        return
    pieces = _pieces(output)
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    send = stream.send if len(pieces) == len(output) else stream.send_and_more
    _drop(output, send(data))


def _send_memory(stream: Stream, output: list[Part]) -> None:
    """All of it in one piece: there may be hundreds of small responses."""
    data = output[0] if len(output) == 1 else b"".join(output)  # type: ignore[arg-type]
    assert not isinstance(data, FileRange)
    sent = stream.send(data)
    output[:] = [memoryview(data)[sent:]] if sent < len(data) else []


def _pieces(output: list[Part]) -> list[bytes | bytearray | memoryview]:
    """The parts in front that leave together: those in memory, and short ranges. At least one."""
    pieces: list[bytes | bytearray | memoryview] = []
    left = _JOINED_BYTES_MAX
    for part in output:
        if isinstance(part, FileRange):
            left -= part.length
            if part.length > SHORT_RANGE_BYTES or left < 0:
                break
            pieces.append(_read(part))
        else:
            left -= len(part)
            if left < 0 and pieces:
                break
            pieces.append(part)
    return pieces


def _read(part: FileRange) -> bytes:
    data = part.file.pread(part.length, part.position)
    if len(data) < part.length:
        raise _too_short()
    return data


def _send_range(stream: Stream, output: list[Part], part: FileRange) -> None:
    sent = stream.send_file(part)
    if sent == 0:
        raise _too_short()
    _drop(output, sent)


def _drop(output: list[Part], sent: int) -> None:
    """Remove the first bytes of the parts."""
    whole = 0
    for part in output:
        length = part.length if isinstance(part, FileRange) else len(part)
        if sent < length:
            if sent:
                output[whole] = _rest(part, sent)
            break
        sent -= length
        whole += 1
    del output[:whole]


def _rest(part: Part, sent: int) -> Part:
    if isinstance(part, FileRange):
        return FileRange(part.file, part.position + sent, part.length - sent)
    return memoryview(part)[sent:]


def _too_short() -> OSError:
    return OSError("the file ends before the range does")


def memory(parts: list[Part]) -> int:
    """The memory of a response, near enough: its first part. File ranges follow, which stay in their file."""
    first = parts[0] if parts else b""
    return 0 if isinstance(first, FileRange) else len(first)
