"""The parts of responses leave in order and whole, however little the stream takes at a time."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.broker.net.responses.sending import SHORT_RANGE_BYTES, send_parts
from forebay.broker.ports import Address
from forebay.wire.parts import FileRange, Part

LONG = SHORT_RANGE_BYTES + 1
CONTENT = bytes(n % 251 for n in range(40 * SHORT_RANGE_BYTES))


class _File:
    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.read = 0

    def fileno(self) -> int:
        raise AssertionError("the stream of this test reads")

    def pread(self, length: int, position: int) -> bytes:
        self.read += 1
        return self.content[position : position + length]

    def cached(self, position: int, length: int) -> bool:
        return True


class _Stream:
    """Takes as many bytes of each call as it is told."""

    peer: Address = ("client", 1)
    local: Address = ("broker", 2)

    def __init__(self, *takes: int) -> None:
        self.got = bytearray()
        self.calls: list[str] = []
        self._takes = list(takes)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        return self._take("send", data)

    def send_and_more(self, data: bytes | bytearray | memoryview) -> int:
        return self._take("more", data)

    def send_file(self, source: FileRange) -> int:
        file = source.file
        assert isinstance(file, _File)
        return self._take("file", file.content[source.position : source.position + source.length])

    def recv_into(self, buffer: memoryview) -> int:
        raise BlockingIOError

    def at_end(self) -> bool:
        return False

    def on_readable(self, callback: object) -> None: ...

    def on_writable(self, callback: object) -> None: ...

    def close(self) -> None: ...

    def _take(self, call: str, data: bytes | bytearray | memoryview) -> int:
        room = self._takes.pop(0) if self._takes else len(data)
        if data and not room:
            raise BlockingIOError
        self.calls.append(call)
        self.got += memoryview(data)[:room]
        return min(room, len(data))


def _sent(stream: _Stream, output: list[Part]) -> bytes:
    while output:
        with contextlib.suppress(BlockingIOError):
            send_parts(stream, output)
    return bytes(stream.got)


def _whole(parts: list[Part]) -> bytes:
    return b"".join(
        CONTENT[part.position : part.position + part.length] if isinstance(part, FileRange) else part
        for part in parts
    )


def test_a_short_range_leaves_with_what_is_around_it() -> None:
    stream = _Stream()
    assert _sent(stream, [b"head", FileRange(_File(), 3, 1000), b"end"]) == b"head" + CONTENT[3:1003] + b"end"
    assert stream.calls == ["send"]


def test_a_long_range_is_left_to_the_system() -> None:
    stream, file = _Stream(), _File()
    parts: list[Part] = [b"head", FileRange(file, 3, LONG), b"end"]
    assert _sent(stream, list(parts)) == _whole(parts)
    assert stream.calls == ["more", "file", "send"]
    assert not file.read


def test_many_short_ranges_leave_in_pieces_of_bounded_size() -> None:
    stream, size = _Stream(), SHORT_RANGE_BYTES
    parts: list[Part] = [FileRange(_File(), n * size, size) for n in range(40)]
    assert _sent(stream, list(parts)) == CONTENT
    assert stream.calls == ["more"] * 4 + ["send"]


def test_what_is_in_memory_leaves_in_one_call() -> None:
    stream = _Stream(5)
    output: list[Part] = [b"head", bytearray(200_000), b"end"]
    whole = _whole(list(output))
    send_parts(stream, output)
    assert len(output) == 1  # joined once, however little the stream takes
    assert _sent(stream, output) == whole
    assert stream.calls == ["send", "send"]


def test_large_pieces_of_memory_beside_ranges_are_not_copied() -> None:
    stream, large = _Stream(), bytes(200_000)
    parts: list[Part] = [b"head", large, FileRange(_File(), 0, 10)]
    assert _sent(stream, list(parts)) == _whole(parts)
    assert stream.calls == ["more", "more", "send"]


def test_what_the_stream_does_not_take_of_a_range_is_not_kept_in_memory() -> None:
    stream, file = _Stream(10, 0), _File()
    output: list[Part] = [b"head", FileRange(file, 100, 1000), FileRange(file, 5000, 50)]
    send_parts(stream, output)
    assert output == [FileRange(file, 106, 994), FileRange(file, 5000, 50)]
    with pytest.raises(BlockingIOError):
        send_parts(stream, output)
    assert output == [FileRange(file, 106, 994), FileRange(file, 5000, 50)]


@pytest.mark.parametrize("length", [1000, LONG])
def test_a_file_that_ends_early_is_an_error(length: int) -> None:
    with pytest.raises(OSError, match="the file ends"):
        _sent(_Stream(), [b"head", FileRange(_File(b""), 0, length), b"end"])


_memory = st.binary(min_size=1, max_size=50) | st.integers(50_000, 100_000).map(bytes)
_ranges = st.builds(
    FileRange,
    st.just(_File()),
    st.integers(0, len(CONTENT) - 3 * SHORT_RANGE_BYTES),
    st.integers(1, 200) | st.integers(SHORT_RANGE_BYTES - 2, 3 * SHORT_RANGE_BYTES),
)


@given(
    st.lists(_memory | _ranges, min_size=1, max_size=30),
    st.lists(st.integers(0, 5) | st.integers(0, 100_000), max_size=50),
)
def test_every_part_leaves_in_order(parts: list[Part], takes: list[int]) -> None:
    assert _sent(_Stream(*takes), list(parts)) == _whole(parts)
