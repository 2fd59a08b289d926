"""Clients that open connections and do not log in, thousands of them, from a process of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

Address = tuple[str, int]
Behaviour = Callable[[int], bytes]
"""What the connection of this number has to say, byte by byte, again from the beginning when it is over."""

_CONNECT_S_MAX = 60.0
_GIANT, _JUST_ALLOWED = 2**31 - 1, 65_536
_API_VERSIONS = struct.pack(">ihhih", 12, 18, 0, 1, -1) + b"\0\0"
_TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)


def silent(_: int) -> bytes:
    return b""


def slow(_: int) -> bytes:
    """The beginning of a request."""
    return _API_VERSIONS[:10]


def slow_handshake(_: int) -> bytes:
    """The beginning of a handshake."""
    return _TLS_HELLO


def giant(number: int) -> bytes:
    """Lengths that nobody is allowed, and the longest that is; nothing of what they announce comes."""
    return struct.pack(">i", _GIANT if number % 2 else _JUST_ALLOWED)


def giant_record(number: int) -> bytes:
    """The same for TLS: a record that is longer than any, or a handshake message that is."""
    return b"\x16\x03\x01\xff\xff" if number % 2 else b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"


@contextlib.contextmanager
def strangers(address: Address, count: int, behaviour: Behaviour) -> Iterator[Callable[[], bool]]:
    """While they are there; the function tells whether all have come by now."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_besiege, args=(address, count, behaviour, theirs), daemon=True)
    process.start()
    arrived = False

    def have_come() -> bool:
        nonlocal arrived
        assert process.is_alive(), "the strangers' process has ended"
        if not arrived and ours.poll():
            ours.recv()
            arrived = True
        return arrived

    try:
        yield have_come
    finally:
        process.kill()
        process.join()


def _besiege(address: Address, count: int, behaviour: Behaviour, pipe: Connection) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held: dict[int, socket.socket] = {}
    for number in range(count):
        sock = held[number] = socket.create_connection(address, _CONNECT_S_MAX)
        sock.setblocking(False)
        _say(held, number, behaviour(number)[:4])
    pipe.send("all have come")
    position = 4
    while not pipe.poll(0.05):
        for number in list(held):
            text = behaviour(number)
            if text:
                _say(held, number, text[position % len(text) :][:1])
        position += 1


def _say(held: dict[int, socket.socket], number: int, text: bytes) -> None:
    """What was closed by the other side is forgotten."""
    try:
        held[number].send(text)
    except BlockingIOError:
        pass
    except OSError:
        held.pop(number).close()
