"""Clients that ask for new keys (KeyUpdate of TLS 1.3): each is answered, and costs little if not read."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from forebay.broker.tls.sending import PIECE_BYTES
from forebay.broker.tls.stream import TlsStream
from forebay.local.certificates import Authority, write_certificate
from support.faults.memory_streams import MemoryStream

CIPHER = "TLS_AES_256_GCM_SHA384"
KEY_UPDATE = bytes([24, 0, 0, 1, 1])
"""The message: new keys, and the other side shall take new ones too."""
HANDSHAKE, APPLICATION_DATA = 0x16, 0x17
ROUND = 500


class KeyUpdates:
    """Records that ask for new keys, as OpenSSL's client would send them. Python's has no call for it."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: that of the client's traffic, before it has sent anything."""
        self._secret = secret

    def next(self) -> bytes:
        inner = KEY_UPDATE + bytes([HANDSHAKE])
        head = bytes([APPLICATION_DATA, 3, 3]) + (len(inner) + 16).to_bytes(2)
        key, nonce = self._derived(b"key", 32), self._derived(b"iv", 12)  # each key encrypts one record
        self._secret = self._derived(b"traffic upd", 48)
        return head + AESGCM(key).encrypt(nonce, inner, head)

    def _derived(self, label: bytes, size: int) -> bytes:
        name = b"tls13 " + label
        info = size.to_bytes(2) + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(SHA384(), size, info).derive(self._secret)


def _shaken(stream: MemoryStream, directory: Path) -> KeyUpdates:
    """Make a handshake with the stream above this one."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.keylog_filename = str(directory / "keys.log")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(incoming, outgoing)
    done = False
    while not done:
        try:
            tls.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            pass
        stream.inbox += outgoing.read()
        assert stream.readable is not None
        stream.readable()
        incoming.write(bytes(stream.sent))
        stream.sent.clear()
    assert tls.cipher() == (CIPHER, "TLSv1.3", 256)
    lines = (line.split() for line in (directory / "keys.log").read_text().splitlines())
    (secret,) = [line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"]
    return KeyUpdates(bytes.fromhex(secret))


@pytest.fixture
def server(tmp_path: Path) -> ssl.SSLContext:
    write_certificate(tmp_path / "broker.pem", Authority.create().issue("broker", ["localhost"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "broker.pem")
    return context


def _read_all(below: MemoryStream, stream: TlsStream) -> None:
    buffer = memoryview(bytearray(PIECE_BYTES))
    while below.inbox:
        with pytest.raises(BlockingIOError):  # these records have nothing for the reader
            stream.recv_into(buffer)


async def test_a_client_that_reads_may_ask_for_new_keys_as_often_as_it_likes(
    server: ssl.SSLContext, tmp_path: Path
) -> None:
    below = MemoryStream("broker")
    stream = TlsStream(below, server, memoryview(bytearray(PIECE_BYTES)), asyncio.get_running_loop())
    updates = _shaken(below, tmp_path)
    answered = 0
    while answered < PIECE_BYTES // 2:
        below.inbox += b"".join(updates.next() for _ in range(ROUND))
        _read_all(below, stream)
        answered += len(below.sent)
        below.sent.clear()


async def test_a_client_that_reads_no_answers_is_given_up(server: ssl.SSLContext, tmp_path: Path) -> None:
    below = MemoryStream("broker")
    stream = TlsStream(below, server, memoryview(bytearray(PIECE_BYTES)), asyncio.get_running_loop())
    updates = _shaken(below, tmp_path)
    below.window = 1000
    asked = 0
    with pytest.raises(ConnectionAbortedError, match="does not read"):
        buffer = memoryview(bytearray(PIECE_BYTES))
        while asked < 3 * PIECE_BYTES:
            records = b"".join(updates.next() for _ in range(ROUND))
            asked += len(records)
            below.inbox += records
            while below.inbox:
                try:
                    stream.recv_into(buffer)
                except BlockingIOError:
                    continue
    assert len(below.sent) == below.window
