"""Our own HTTP: bodies of every kind, one after the other on one connection, and nothing without bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forebay.coordination.etcd import http
from forebay.coordination.etcd.http import Connection, HttpError


@asynccontextmanager
async def answering(*answers: bytes, pieces: int = 0) -> AsyncIterator[Connection]:
    """A connection to a server that has these answers, each for one request; in pieces if asked to."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), b":0")
            await reader.readexactly(int(length.split(b":")[1]))
            step = pieces or max(1, len(answer))
            for start in range(0, len(answer), step):
                writer.write(answer[start : start + step])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = await Connection.open("127.0.0.1", server.sockets[0].getsockname()[1], None)
        try:
            yield connection
        finally:
            connection.abort()


SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Grpc-Trailer-X\r\n\r\n"
    b"3\r\nhel\r\n2;note=x\r\nlo\r\n0\r\nGrpc-Trailer-X: y\r\n\r\n"
)
UNTIL_END = b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello"


@pytest.mark.parametrize("pieces", [0, 1, 7])
async def test_answers_follow_each_other_on_one_connection(pieces: int) -> None:
    async with answering(SIZED, CHUNKED, SIZED, UNTIL_END, pieces=pieces) as connection:
        for _ in range(3):
            assert connection.usable
            response = await connection.request("/x", {"A": "b"}, b"{}")
            assert response.status == 200
            assert not connection.usable
            assert await response.read() == b"hello"
        assert await (await connection.request("/x", {}, None)).read() == b"hello"
        assert not connection.usable


async def test_an_answer_that_says_close_is_the_last() -> None:
    last = SIZED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with answering(last) as connection:
        assert await (await connection.request("/x", {}, b"")).read() == b"hello"
        assert not connection.usable


@pytest.mark.parametrize("pieces", [0, 1])
async def test_lines_come_whole_however_they_are_cut(pieces: int) -> None:
    body = b"9\r\none\ntwo\nt\r\n7\r\nhree\n\nf\r\n3\r\nour\r\n0\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    async with answering(answer, pieces=pieces) as connection:
        response = await connection.request("/x", {}, b"")
        assert [line async for line in response.lines()] == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "hung up"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "hung up"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", "hung up"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "-5 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFF\r\n", "bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "too many header fields"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP"),
    ],
)
async def test_what_is_cut_short_or_has_no_bounds(answer: bytes, told: str) -> None:
    async with answering(answer) as connection:
        with pytest.raises(HttpError, match=told):
            await (await connection.request("/x", {}, b"")).read()


async def test_a_body_is_bounded_however_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_BYTES_MAX", 4)
    async with answering(UNTIL_END) as connection:
        with pytest.raises(HttpError, match="more than 4 bytes"):
            await (await connection.request("/x", {}, None)).read()
    async with answering(CHUNKED) as connection:
        response = await connection.request("/x", {}, None)
        with pytest.raises(HttpError, match="a line of more than 4 bytes"):
            [line async for line in response.lines()]
