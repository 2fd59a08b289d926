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

Answer = Callable[[memoryview], "bytes | memoryview"]


class Connection:
    """One client: splits what arrives into frames and answers each."""

    def __init__(self, sock: socket.socket, server: BareServer) -> None:
        self.sock = sock
        self.server = server
        self.loop = server.loop
        self.shared = server.shared
        self.answer = server.answer
        self.partial = b""
        self.unsent = b""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop.add_reader(sock, self.on_readable)

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
        self.server.forget()


class BareServer:
    """Accepts connections; calls `on_idle` when the last of them has gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Answer, on_idle: Callable[[], None]) -> None:
        self.loop = loop
        self.answer = answer
        self.on_idle = on_idle
        self.shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.listener.setblocking(False)
        loop.add_reader(self.listener, self.accept)

    def accept(self) -> None:
        self.connections += 1
        Connection(self.listener.accept()[0], self)

    def forget(self) -> None:
        self.connections -= 1
        if not self.connections:
            self.on_idle()


def echo(frame: memoryview) -> memoryview:
    return frame


class CrcWriter:
    """Answers with the CRC of a frame once the frame is in the file."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        Path(path).unlink()

    def __call__(self, frame: memoryview) -> bytes:
        crc = crc32.iscsi(frame[4:])
        os.write(self.descriptor, frame)
        return ANSWER.pack(4, crc)

    def start_over(self) -> None:
        """Let each measurement write to new pages, as a log does: writing over old ones is cheaper."""
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)


async def serve(answer: Answer, on_idle: Callable[[], None] = lambda: None) -> None:
    server = BareServer(asyncio.get_running_loop(), answer, on_idle)
    host, port = server.listener.getsockname()
    print(f"ready on {host}:{port}", flush=True)
    await asyncio.Event().wait()


def main(arguments: list[str]) -> None:
    if arguments == ["echo"]:
        asyncio.run(serve(echo))
    elif len(arguments) == 2 and arguments[0] == "crc-write":
        writer = CrcWriter(arguments[1])
        asyncio.run(serve(writer, writer.start_over))
    else:
        sys.exit("usage: python -m bench.bare echo | crc-write FILE")


if __name__ == "__main__":
    main(sys.argv[1:])
