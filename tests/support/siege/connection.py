"""A connection of an attacker: raw bytes, from any address of this machine, with or without a login."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from typing import Any, Protocol

from forebay.wire.codec.compiled import decode
from forebay.wire.fields import Request, Response
from forebay.wire.frames import request_frame
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from forebay.wire.parts import join
from forebay.wire.sasl.client import Login, SaltedPasswords, ScramLogin
from forebay.wire.sasl.scram import ScramMechanism
from support.siege.target import PASSWORDS, Address, source_address

CONNECT_S_MAX = 10.0
_READ_BYTES = 1 << 16
_LENGTH = struct.Struct(">i")
_SALTED: dict[str, SaltedPasswords] = {}


class Refused(ConnectionError):
    """The broker has ended the connection, or did not accept the login."""


class Stream(Protocol):
    async def send(self, data: bytes | memoryview) -> None: ...
    async def receive(self, size: int) -> bytes: ...
    async def discard(self) -> int:
        """Reads whatever has come, and returns how much; raises Refused at the end."""

    def close(self) -> None: ...


class PlainStream:
    """On a socket: nothing that is sent is copied."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes | memoryview) -> None:
        await self._loop.sock_sendall(self._socket, data)
        await asyncio.sleep(0)  # all connections have their turn, also where a socket takes everything

    async def receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = await self._loop.sock_recv(self._socket, size - len(received))
            if not chunk:
                raise Refused
            received += chunk
        return bytes(received)

    async def discard(self) -> int:
        chunk = await self._loop.sock_recv(self._socket, _READ_BYTES)
        if not chunk:
            raise Refused
        return len(chunk)

    def close(self) -> None:
        self._socket.close()


class TlsStream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes | memoryview) -> None:
        if self._writer.is_closing():  # writing would go on in silence
            raise Refused
        self._writer.write(data)
        await self._writer.drain()
        await asyncio.sleep(0)

    async def receive(self, size: int) -> bytes:
        return await self._reader.readexactly(size)

    async def discard(self) -> int:
        chunk = await self._reader.read(_READ_BYTES)
        if not chunk:
            raise Refused
        return len(chunk)

    def close(self) -> None:
        self._writer.transport.abort()


async def connect(
    door: Address, number: int, tls: ssl.SSLContext | None = None, *, receive_buffer: int | None = None
) -> Stream:
    """From the source address of this number."""
    sock = socket.socket()
    try:
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.bind((source_address(number), 0))
        async with asyncio.timeout(CONNECT_S_MAX):
            await asyncio.get_running_loop().sock_connect(sock, door)
            if tls is None:
                return PlainStream(sock)
            return TlsStream(*await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=door[0]))
    except BaseException:
        sock.close()
        raise


def frame(request: Request, version: int) -> bytes:
    return join(request_frame(request, version, correlation_id=1, client_id="siege"))


async def read_frame(stream: Stream) -> bytes:
    (size,) = _LENGTH.unpack(await stream.receive(4))
    return await stream.receive(size)


async def call(stream: Stream, request: Request, version: int, response: type[Response]) -> Any:
    """The answer; of versions whose answers have no tags in their header."""
    await stream.send(frame(request, version))
    return decode(response, version, (await read_frame(stream))[4:])


async def log_in(stream: Stream, user: str) -> None:
    """With the right password, by SCRAM: it is derived once for each user and salt."""
    salted = _SALTED.setdefault(user, SaltedPasswords())
    login = ScramLogin(ScramMechanism.SHA_256, user, PASSWORDS[user], os.urandom, salted)
    await begin_login(stream, login.mechanism)
    await finish_login(stream, login)


async def begin_login(stream: Stream, mechanism: str) -> None:
    await stream.send(frame(SaslHandshakeRequest(mechanism=mechanism), 1))
    await read_frame(stream)


async def finish_login(stream: Stream, login: Login) -> None:
    message: bytes | None = login.first()
    while message is not None:
        answer = await authenticate(stream, message)
        if answer.error_code:
            raise Refused
        message = login.step(bytes(answer.auth_bytes))


async def authenticate(stream: Stream, message: bytes) -> Any:
    return await call(stream, SaslAuthenticateRequest(auth_bytes=message), 1, SaslAuthenticateResponse)
