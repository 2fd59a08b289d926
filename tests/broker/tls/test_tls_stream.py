"""The encrypted stream on memory: cut and merged at every byte, slow on either side, ended, disturbed."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forebay.broker.tls.sending import BURST_BYTES, PIECE_BYTES
from forebay.broker.tls.stream import NotTls, TlsStream
from forebay.local.certificates import Authority, write_certificate
from forebay.wire.parts import FileRange
from support.faults.memory_streams import CutWire, MemoryStream, MemoryWire

HOST = "broker.example.org"


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority.create()
    authority.save(directory)
    for name, hosts in (("broker", [HOST]), ("client", [])):
        write_certificate(directory / f"{name}.pem", authority.issue(name, hosts))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "broker.pem")
    server.load_verify_locations(directory / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    client.load_cert_chain(directory / "client.pem")
    return server, client


@dataclass
class Reader:
    """Reads what comes, `size` bytes at a time."""

    stream: TlsStream
    size: int = 1 << 20
    got: bytearray = field(default_factory=bytearray)
    ended: bool = False
    error: OSError | None = None

    def start(self) -> None:
        self.stream.on_readable(self.read)

    def read(self) -> None:
        buffer = memoryview(bytearray(self.size))
        try:
            count = self.stream.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.error = error
            self.stream.on_readable(None)
            return
        self.got += buffer[:count]
        if not count:
            self.ended = True
            self.stream.on_readable(None)


class Pair:
    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext], *places: int) -> None:
        loop, scratch = asyncio.get_running_loop(), memoryview(bytearray(PIECE_BYTES))
        self.below_server, self.below_client = MemoryStream("server"), MemoryStream("client")
        self.wire = (
            CutWire(self.below_client, self.below_server, places)
            if places
            else MemoryWire(self.below_client, self.below_server)
        )
        self.server = TlsStream(self.below_server, contexts[0], scratch, loop)
        self.client = TlsStream(
            self.below_client, contexts[1], scratch, loop, server_side=False, server_hostname=HOST
        )
        self.at_server, self.at_client = Reader(self.server), Reader(self.client)
        self.at_server.start()
        self.at_client.start()

    async def settle(self) -> None:
        """Until nothing moves any more, below and above."""
        before = -1
        while before != (before := len(self.at_server.got) + len(self.at_client.got)):
            await self.wire.settle()

    async def shake(self) -> None:
        await self.settle()
        assert self.server.is_secured and self.client.is_secured

    async def send_all(self, stream: TlsStream, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[stream.send(view) :]
            except BlockingIOError:
                await self.settle()
        await self.settle()


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
MESSAGES = (b"first", bytes(300), b"last")


async def _converse(pair: Pair) -> None:
    await pair.shake()
    for message in MESSAGES:
        await pair.send_all(pair.client, message)
        await pair.send_all(pair.server, message[::-1])
    assert pair.at_server.got == b"".join(MESSAGES)
    assert pair.at_client.got == b"".join(message[::-1] for message in MESSAGES)


async def test_records_may_be_cut_at_every_byte(contexts: Contexts) -> None:
    whole = Pair(contexts, 1 << 30)
    await _converse(whole)
    assert isinstance(whole.wire, CutWire)
    apart = whole.wire.passed // 8  # several cuts at a time, for a handshake takes its time
    for place in range(1, apart + 1):
        await _converse(Pair(contexts, *range(place, whole.wire.passed, apart)))


async def test_records_may_come_byte_by_byte(contexts: Contexts) -> None:
    await _converse(Pair(contexts, *range(1, 4000)))


async def test_records_may_come_merged(contexts: Contexts) -> None:
    """A client that sends its first requests together with the end of its handshake."""
    pair = Pair(contexts)
    pair.at_server.size = 10
    below = pair.below_client
    while not pair.client.is_secured:
        pair.wire._deliver(below, pair.below_server)
        if pair.below_server.readable is not None and pair.below_server.inbox:
            pair.below_server.readable()
        pair.wire._deliver(pair.below_server, below)
        if below.readable is not None and below.inbox:
            below.readable()
        await asyncio.sleep(0)
    for message in MESSAGES:
        assert pair.client.send(message) == len(message)
    await pair.settle()
    assert pair.at_server.got == b"".join(MESSAGES)


@pytest.mark.parametrize("size", [1, 7, 1000, 16384, 100_000])
async def test_a_reader_with_little_room_gets_everything(contexts: Contexts, size: int) -> None:
    pair = Pair(contexts)
    pair.at_server.size = size
    await pair.shake()
    data = bytes(range(256)) * (20 if size < 10 else 2000)
    await pair.send_all(pair.client, data)
    assert pair.at_server.got == data


async def test_a_reader_that_pauses_misses_nothing(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.at_server.size = 100
    await pair.shake()
    assert pair.client.send(bytes(1000)) == 1000
    pair.wire._deliver(pair.below_client, pair.below_server)
    assert pair.below_server.readable is not None
    pair.below_server.readable()
    assert len(pair.at_server.got) == 100
    pair.server.on_readable(None)
    await pair.settle()
    assert len(pair.at_server.got) == 100
    pair.at_server.start()
    await pair.settle()
    assert len(pair.at_server.got) == 1000


async def test_what_comes_before_there_is_a_reader_waits(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.server.on_readable(None)
    await pair.shake()
    await pair.send_all(pair.client, b"first")
    assert pair.below_server.readable is None  # else the loop would call it again and again
    pair.at_server.start()
    await pair.settle()
    assert pair.at_server.got == b"first"


async def test_a_slow_reader_costs_one_piece(contexts: Contexts) -> None:
    pair = Pair(contexts)
    await pair.shake()
    pair.below_server.window = 1000
    data = memoryview(bytes(range(256)) * 8192)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += pair.server.send(data[sent:])
    assert sent <= PIECE_BYTES
    woken: list[None] = []
    pair.server.on_writable(lambda: woken.append(None))
    while sent < len(data):
        await pair.settle()
        try:
            sent += pair.server.send(data[sent:])
        except BlockingIOError:
            continue
    pair.server.on_writable(None)
    await pair.settle()
    assert woken and pair.at_client.got == data


async def test_ranges_of_files_are_sent_in_pieces(contexts: Contexts, tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    pair = Pair(contexts)
    await pair.shake()
    assert pair.server.send_and_more(b"head") == 4
    assert not pair.below_server.sent  # it leaves with what follows
    position, end = 10, len(data) - 10
    while position < end:
        source = FileRange(_File(data), position, end - position)
        position += pair.server.send_file(source)
        assert len(pair.below_server.sent) <= PIECE_BYTES * 2
        await pair.settle()
    assert pair.at_client.got == b"head" + data[10:-10]
    assert pair.server.send_file(FileRange(_File(data), len(data), 5)) == 0


class _File:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def fileno(self) -> int:
        raise AssertionError("it is read, not passed on")

    def pread(self, length: int, position: int) -> bytes:
        return self._data[position : position + length]

    def cached(self, position: int, length: int) -> bool:
        return True


async def test_a_long_range_leaves_time_for_others(contexts: Contexts) -> None:
    pair = Pair(contexts)
    await pair.shake()
    file, size = _File(bytes(4 * BURST_BYTES)), 4 * BURST_BYTES
    sent, bursts = 0, []
    while sent < size:
        begin = sent
        with contextlib.suppress(BlockingIOError):
            while sent < size:
                sent += pair.server.send_file(FileRange(file, sent, size - sent))
        bursts.append(sent - begin)
        woken: list[None] = []
        pair.server.on_writable(lambda woken=woken: woken.append(None))  # type: ignore[misc]
        await pair.settle()
        assert woken  # at once, for the stream below has room
        pair.server.on_writable(None)
    assert bursts == [BURST_BYTES] * 4
    assert len(pair.at_client.got) == size


async def test_the_end_is_seen_by_a_reader_and_by_one_that_is_busy(contexts: Contexts) -> None:
    for busy in (False, True):
        pair = Pair(contexts)
        await pair.shake()
        if busy:
            pair.server.on_readable(None)
        assert not pair.server.at_end()
        pair.client.close()
        await pair.settle()
        assert pair.at_server.ended or pair.server.at_end()


async def test_looking_for_the_end_loses_nothing(contexts: Contexts) -> None:
    pair = Pair(contexts)
    await pair.shake()
    pair.server.on_readable(None)
    await pair.send_all(pair.client, bytes(range(256)) * 100)
    assert not pair.server.at_end()
    assert not pair.server.at_end()
    pair.at_server.start()
    await pair.settle()
    assert pair.at_server.got == bytes(range(256)) * 100


async def test_what_is_not_tls_is_recognised(contexts: Contexts) -> None:
    pair = Pair(contexts)
    failures: list[Exception] = []
    pair.server.on_failed = failures.append
    pair.below_client.sent[:] = b"\0\0\0\x20\0\x12\0\x03"
    await pair.settle()
    assert isinstance(failures[0], NotTls)
    assert isinstance(pair.at_server.error, ConnectionAbortedError)


async def test_a_handshake_may_not_take_for_ever(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.server.give_up()
    assert isinstance(pair.server.failure, TimeoutError)
    secured = Pair(contexts)
    await secured.shake()
    secured.server.give_up()
    assert secured.server.failure is None


async def test_disturbed_bytes_end_the_connection_and_nothing_else(contexts: Contexts) -> None:
    """Bits are turned in every tenth byte of what a client says, in the handshake and after it."""
    whole = Pair(contexts, 1 << 30)
    await _converse(whole)
    assert isinstance(whole.wire, CutWire)
    expected = b"".join(MESSAGES)
    for place in range(0, whole.wire.passed - 1, 10):
        pair = Pair(contexts)
        pair.below_client.disturbed = place
        await pair.settle()
        with contextlib.suppress(OSError):
            for message in MESSAGES:
                pair.client.send(message)
                await pair.settle()
        assert expected.startswith(pair.at_server.got)
        assert pair.at_server.got != expected or pair.at_server.error is None
