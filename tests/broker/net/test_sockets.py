"""Names that stand for several addresses: the first may be the wrong one, and the next is tried."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork, SocketStream
from forebay.broker.ports import Stream
from forebay.errors import ErrorCode
from forebay.local.ports import ReservedPort
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.local_cluster import eventually, local_cluster
from support.clients.wire_client import batch, create_topic, produce
from support.machines.enough_cores import stranger_work

NAME = "broker.test"
REFUSING = "127.0.0.2"
SILENT = "127.0.0.3"
HERE = "127.0.0.1"


class Names:
    """What the system answers when it is asked for the addresses of a name."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self._ask = socket.getaddrinfo

    def getaddrinfo(self, host: str | bytes | None, port: int, *args: Any, **options: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else host
        if name is None or name not in self.addresses:
            return self._ask(host, port, *args, **options)
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port))
            for each in self.addresses[name]
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    return made


@contextlib.contextmanager
def listening(host: str, port: int = 0, backlog: int = 16) -> Iterator[int]:
    with socket.socket() as server:
        server.bind((host, port))
        server.listen(backlog)
        yield server.getsockname()[1]


@contextlib.contextmanager
def silent(port: int) -> Iterator[None]:
    """An address that answers nobody: those who wait there already are as many as may."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(listening(SILENT, port, backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((SILENT, port))
        yield


async def connected_to(host: str, port: int) -> str:
    stream: SocketStream = await SocketNetwork().connect(host, port)
    stream.close()
    return stream.peer[0]


async def test_the_next_address_is_tried_when_the_first_refuses(names: Names) -> None:
    with listening(HERE) as port:
        names.addresses[NAME] = [REFUSING, "::1", HERE]
        assert await connected_to(NAME, port) == HERE


async def test_the_next_address_is_tried_when_the_first_says_nothing(names: Names) -> None:
    with listening(HERE) as port, silent(port):
        names.addresses[NAME] = [SILENT, HERE]
        assert await connected_to(NAME, port) == HERE


async def test_an_address_of_a_family_that_this_machine_lacks_is_passed_over(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = socket.socket

    def only_v4(family: int = socket.AF_INET, *args: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return make(family, *args)

    with listening(HERE) as port:
        names.addresses[NAME] = ["::1", HERE]
        monkeypatch.setattr(socket, "socket", only_v4)
        assert await connected_to(NAME, port) == HERE


async def test_when_no_address_answers_all_are_named(names: Names) -> None:
    names.addresses[NAME] = [REFUSING, HERE]
    with contextlib.closing(ReservedPort()) as nobody:
        with pytest.raises(OSError, match=rf"{REFUSING}: .*; {HERE}: .*"):
            await connected_to(NAME, nobody.number)
        names.addresses[NAME] = []
        with pytest.raises(OSError, match="no address"):
            await connected_to(NAME, nobody.number)


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(ReservedPort())).number for _ in range(2)]


async def test_replicas_reach_a_leader_whose_name_has_a_wrong_address_first(
    tmp_path: Path, names: Names, ports: list[int]
) -> None:
    """As 'localhost' does on many machines, where ::1 comes first and nobody listens there."""
    names.addresses[NAME] = [REFUSING, HERE]

    def settings_of(node: int) -> dict[str, str]:
        port = ports[node - 1]
        return {
            "listeners": f"PLAINTEXT://{HERE}:{port}",
            "advertised.listeners": f"PLAINTEXT://{NAME}:{port}",
        }

    async with local_cluster(tmp_path, brokers=2, settings_of=settings_of) as cluster:
        assert (await cluster.ask(1, create_topic("t", 4), 7)).topics[0].error_code == ErrorCode.NONE
        await cluster.knows("t")
        for index in range(4):
            request = produce("t", batch(b"value"), partition=index, acks=-1)
            answer = await cluster.ask(cluster.leader("t", index), request, 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        peers = await PeerConnection.open(
            SocketNetwork().connect,
            NAME,
            cluster[1].image.brokers[1].port,
            client_id="test",
            response_bytes_max=1 << 20,
        )
        assert await peers.ask(MetadataRequest(topics=[]))
        peers.close()


# -- listening ---------------------------------------------------------------------------------------------


async def listen(host: str, port: int = 0) -> tuple[str, int]:
    accepted: list[Stream] = []
    listener = SocketNetwork().listen(host, port, accepted.append)
    listener.start(stranger_work(asyncio.get_running_loop()))
    try:
        await connected_to(*listener.address)
        await eventually(lambda: accepted)
        return listener.address
    finally:
        listener.close()
        for stream in accepted:
            stream.close()


async def test_a_broker_listens_on_the_address_of_its_name_that_is_here(names: Names) -> None:
    names.addresses[NAME] = ["192.0.2.1", HERE]
    assert (await listen(NAME))[0] == HERE


async def test_an_address_that_is_taken_is_not_evaded(names: Names) -> None:
    names.addresses[NAME] = [HERE, REFUSING]
    with listening(HERE) as port, pytest.raises(OSError) as taken:
        await listen(NAME, port)
    assert taken.value.errno == errno.EADDRINUSE


async def test_every_interface_is_the_older_family(names: Names) -> None:
    assert (await listen(""))[0] == "0.0.0.0"


async def test_a_client_by_ipv4_has_the_same_address_where_both_families_are_taken() -> None:
    """What is set for 127.0.0.1 is for this client, too: quotas, access rules, limits of addresses."""
    accepted: list[Stream] = []
    try:
        listener = SocketNetwork().listen("::", 0, accepted.append)
    except OSError:
        pytest.skip("this machine has no IPv6")
    listener.start(stranger_work(asyncio.get_running_loop()))
    client = await SocketNetwork().connect(HERE, listener.address[1])
    try:
        await eventually(lambda: accepted)
        assert accepted[0].peer == client.local and accepted[0].peer[0] == HERE
        assert accepted[0].local == client.peer
    finally:
        client.close()
        listener.close()
        for stream in accepted:
            stream.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
async def test_what_is_no_name_of_a_host_is_an_error_like_any_other(host: str) -> None:
    with pytest.raises(OSError, match="is no name of a host"):
        await SocketNetwork().connect(host, 9092)
