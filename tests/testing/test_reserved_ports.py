"""A port that is reserved stays with its server, whether that listens or is just being started anew."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from forebay.local.ports import HOST, ReservedPort

IP_LOCAL_PORT_RANGE = 51
"""From linux/in.h: the ports of which the system gives one to this socket."""


@pytest.fixture
def reserved() -> Iterator[ReservedPort]:
    port = ReservedPort()
    yield port
    port.close()


def test_its_server_may_come_and_go(reserved: ReservedPort) -> None:
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, reserved.number))
        with (
            socket.create_server((HOST, reserved.number)),
            socket.create_connection((HOST, reserved.number)),
        ):
            pass


def test_nobody_else_is_given_it_by_chance(reserved: ReservedPort) -> None:
    with socket.socket() as other:
        only = struct.pack("=I", reserved.number << 16 | reserved.number)
        try:
            other.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, only)
        except OSError as error:
            pytest.skip(f"this system cannot be asked for one port of its choice: {error}")
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError) as taken:
            other.bind((HOST, 0))
        assert taken.value.errno == errno.EADDRINUSE
        reserved.close()
        other.bind((HOST, 0))
        assert other.getsockname()[1] == reserved.number


def test_one_that_is_taken_is_left_to_its_server_to_complain_about() -> None:
    with socket.create_server((HOST, 0)) as server:
        number = server.getsockname()[1]
        again = ReservedPort(number)
        assert again.number == number
        again.close()
