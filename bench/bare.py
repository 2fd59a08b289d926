"""The least an event loop in Python can do: the servers that the broker is measured against.

Both are the data plane's own kind of loop with everything else taken away: asyncio's selector loop,
`add_reader` on raw non-blocking sockets, one receive buffer shared by all connections, length-prefixed frames
split in place, all answers of one read joined into one send, no reading while an answer is stuck.

    echo        sends every frame back as it came
    crc-write   takes the CRC-32C of every frame, writes it to a file with one write, answers 8 bytes

Run as a program (`python -m bench.bare echo`); it prints `ready on HOST:PORT` and serves until terminated.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from fastcrc import crc32

LENGTH = struct.Struct(">i")
ANSWER = struct.Struct(">iI")
RECEIVE_BUFFER_BYTES = 1 << 20
FILE_BYTES_MAX = 1 << 30

Answer = Callable[[memoryview], "bytes | memoryview"]


class Connection:
    """One client: splits what arrives into frames and answers each."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, shared: memoryview, answer: Answer
    ) -> None:
        self.loop = loop
        self.sock = sock
        self.shared = shared
        self.answer = answer
        self.partial = b""
        self.unsent = b""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.add_reader(sock, self.on_readable)

    def on_readable(self) -> None:
        shared = self.shared
        start = len(self.partial)
        if start:
            shared[:start] = self.partial
        try:
            count = self.sock.recv_into(shared[start:])
        except BlockingIOError:
            return
        except ConnectionError:
            count = 0
        if not count:
            self.close()
            return
        self.send(b"".join(self.split(start + count)))

    def split(self, end: int) -> list[bytes | memoryview]:
        shared, answer, position = self.shared, self.answer, 0
        answers: list[bytes | memoryview] = []
        while end - position >= 4:
            following = position + 4 + LENGTH.unpack_from(shared, position)[0]
            if following > end:
                break
            answers.append(answer(shared[position:following]))
            position = following
        self.partial = bytes(shared[position:end])
        return answers

    def send(self, data: bytes) -> None:
        if not data:
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.unsent = data[sent:]
            self.loop.remove_reader(self.sock)
            self.loop.add_writer(self.sock, self.on_writable)

    def on_writable(self) -> None:
        self.unsent = self.unsent[self.sock.send(self.unsent) :]
        if not self.unsent:
            self.loop.remove_writer(self.sock)
            self.loop.add_reader(self.sock, self.on_readable)

    def close(self) -> None:
        self.loop.remove_reader(self.sock)
        self.sock.close()


def echo(frame: memoryview) -> memoryview:
    return frame


def crc_writer(path: str) -> Answer:
    """Answers with the CRC of the frame once it is in the file, which starts over at a bound."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    Path(path).unlink()
    written = 0

    def answer(frame: memoryview) -> bytes:
        nonlocal written
        crc = crc32.iscsi(frame[4:])
        if written > FILE_BYTES_MAX:
            os.lseek(descriptor, 0, os.SEEK_SET)
            written = 0
        written += os.write(descriptor, frame)
        return ANSWER.pack(4, crc)

    return answer


async def serve(answer: Answer) -> None:
    loop = asyncio.get_running_loop()
    shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.setblocking(False)
    loop.add_reader(listener, lambda: Connection(loop, listener.accept()[0], shared, answer))
    host, port = listener.getsockname()
    print(f"ready on {host}:{port}", flush=True)
    await asyncio.Event().wait()


def main(arguments: list[str]) -> None:
    if arguments == ["echo"]:
        asyncio.run(serve(echo))
    elif len(arguments) == 2 and arguments[0] == "crc-write":
        asyncio.run(serve(crc_writer(arguments[1])))
    else:
        sys.exit("usage: python -m bench.bare echo | crc-write FILE")


if __name__ == "__main__":
    main(sys.argv[1:])
