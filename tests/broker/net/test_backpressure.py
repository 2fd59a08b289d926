"""Clients that ask without reading, connect without speaking or go without a word cost next to nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

from forebay.errors import ErrorCode
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.parts import size_of
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.local_broker import local_broker
from support.clients.wire_client import (
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    fetch,
    frame,
    only_partition,
    produce,
    read,
)
from support.faults.held_disk import HeldDisk
from support.waiting import Patience

MB = 1 << 20


def memory_of(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def send_until_stuck(client: WireClient, data: bytes, bytes_max: int) -> int:
    """Send the same again and again until the broker takes no more; how much it took."""
    client.socket.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < bytes_max:
            sent += client.socket.send(data)
    return sent


def test_fetches_whose_answers_nobody_reads(start_broker: StartBroker) -> None:
    broker = start_broker()
    with WireClient(broker.bootstrap) as client, contextlib.ExitStack() as stack:
        create(client, "wide")
        for _ in range(20):
            append(client, "wide", batch(bytes(900_000)))
        before = memory_of(broker)
        request = frame(fetch("wide", partition_max_bytes=20 * MB, max_bytes=20 * MB), 12)
        for _ in range(30):
            stalled = stack.enter_context(WireClient(broker.bootstrap, receive_buffer=4096))
            stalled.socket.sendall(request * 100)  # 60 GB in all, if it were ever sent
        for _ in range(5):
            assert append(client, "wide", batch(b"others go on")).error_code == ErrorCode.NONE
        assert read(client, "wide", 20).error_code == ErrorCode.NONE
        assert memory_of(broker) - before < 16 * MB


def test_requests_sent_without_ever_reading_the_answers(start_broker: StartBroker) -> None:
    broker = start_broker()
    with WireClient(broker.bootstrap) as client:
        for number in range(20):
            create(client, f"topic-{number}", partitions=20)
        before = memory_of(broker)
        with WireClient(broker.bootstrap, receive_buffer=4096) as stalled:
            taken = send_until_stuck(stalled, frame(MetadataRequest(topics=None), 12) * 1000, 64 * MB)
            assert taken < 64 * MB, "the broker never stopped reading"
            assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
            assert memory_of(broker) - before < 24 * MB


def test_answers_held_back_behind_one_that_waits_are_bounded(tmp_path: Path) -> None:
    """Metadata behind a produce that waits for the disk: each answer is large, and none may leave yet."""
    with local_broker(tmp_path / "data", make_disk=HeldDisk) as local, WireClient(local.bootstrap) as client:
        disk = local.node.disk
        assert isinstance(disk, HeldDisk)
        for number in range(10):
            create(client, f"topic-{number}", partitions=20)
        with disk.held(), WireClient(local.bootstrap) as asker:
            asker.post(produce("topic-0", batch(), acks=-1), PRODUCE)
            assert disk.wait_for_sync()
            asker.socket.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                asker.socket.sendall(frame(MetadataRequest(topics=None), 12) * 2000)
            assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE

            def held_bytes() -> int:
                connections = local.node.server.connections
                replies = [reply for c in connections for reply in c.replies or ()]
                return sum(size_of(reply.parts or ()) for reply in replies)

            assert local.on_loop(lambda _: held_bytes()) < 4 * MB


def test_a_slow_reader_gets_everything_in_the_end(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.bootstrap) as client, WireClient(broker.bootstrap, receive_buffer=4096) as slow:
        create(client, topic)
        values = [bytes([number]) * 500_000 for number in range(8)]
        for value in values:
            append(client, topic, batch(value))
        for offset in range(8):
            slow.post(fetch(topic, offset, partition_max_bytes=1), 12)
            slow.post(MetadataRequest(topics=[]), 9)
        for value in values:
            data = only_partition(slow.read()).records
            assert bytes(data).endswith(value + b"\0")
            assert slow.read().error_code == ErrorCode.NONE


def test_a_thousand_connections(start_broker: StartBroker) -> None:
    broker = start_broker()
    with WireClient(broker.bootstrap) as client, contextlib.ExitStack() as stack:
        create(client, "crowded")
        append(client, "crowded", batch())
        idle = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(500)]
        idle[-1].call(ApiVersionsRequest(), 3)
        before = memory_of(broker)
        crowd = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(500)]
        half = frame(produce("crowded", batch(bytes(50_000))), PRODUCE)
        for member in crowd:
            member.socket.sendall(half[:20])  # each borrows a buffer for the rest, and sends nothing of it
        assert append(client, "crowded", batch()).base_offset == 1
        assert memory_of(broker) - before < 500 * 40_000
        for number, member in enumerate(idle):
            assert append(member, "crowded", batch()).base_offset == 2 + number


def test_announced_bytes_that_never_come_cost_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    with WireClient(broker.bootstrap) as client, contextlib.ExitStack() as stack:
        client.call(ApiVersionsRequest(), 3)
        before = memory_of(broker)
        for _ in range(200):
            liar = stack.enter_context(WireClient(broker.bootstrap))
            liar.socket.sendall(struct.pack(">ihhi", 100 * MB, 0, 9, 1) + bytes(2000))
        for _ in range(5):  # by then the broker has been round to everybody
            assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
        assert memory_of(broker) - before < 16 * MB


def test_idle_connections_are_closed_and_busy_ones_are_not(start_broker: StartBroker) -> None:
    broker = start_broker("connections.max.idle.ms=4000")
    with (
        WireClient(broker.bootstrap) as idle,
        WireClient(broker.bootstrap) as half,
        WireClient(broker.bootstrap) as busy,
    ):
        half.socket.sendall(b"\0\0")
        closed: set[WireClient] = set()
        deadline = time.monotonic() + 60
        while len(closed) < 2 and time.monotonic() < deadline:
            assert busy.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
            for quiet in (idle, half):
                quiet.socket.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    assert quiet.is_closed()
                    closed.add(quiet)
        assert closed == {idle, half}
        assert busy.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE


def test_the_number_of_connections_is_limited(start_broker: StartBroker) -> None:
    broker = start_broker("max.connections=5")
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(5)]
        for client in taken:
            assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
        with WireClient(broker.bootstrap) as refused:
            assert refused.is_closed()
        taken[0].close()
        taken[1].call(ApiVersionsRequest(), 3)
        with WireClient(broker.bootstrap) as welcome:
            assert welcome.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE


def test_the_number_of_connections_of_one_address_is_limited(start_broker: StartBroker) -> None:
    broker = start_broker("max.connections.per.ip=2")
    with WireClient(broker.bootstrap) as one, WireClient(broker.bootstrap) as two:
        for client in (one, two):
            assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
        with WireClient(broker.bootstrap) as refused:
            assert refused.is_closed()
        with socket.socket() as other:
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", broker.port))
            other.sendall(frame(ApiVersionsRequest(), 0))
            assert len(other.recv(4)) == 4


def test_a_client_that_vanishes_while_it_waits_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its long poll would otherwise stay until data comes, which on a quiet topic is never."""
    with local_broker(tmp_path / "data") as local:
        with WireClient(local.bootstrap) as client:
            create(client, "quiet")
        for _ in range(20):
            with WireClient(local.bootstrap) as waiting:
                waiting.post(fetch("quiet", max_wait_ms=2**31 - 1), 12)

        def seen() -> tuple[int, int, int]:
            server, quiet = local.node.server, local.node.partitions.get("quiet", 0)
            return local.node.metrics.connections_accepted, server.connection_count, len(quiet.waiters)

        patience = Patience("all connections were accepted, and nothing of them is left")
        while (now := local.on_loop(lambda _: seen())) != (21, 0, 0):
            patience.check(now)
            time.sleep(0.05)


def test_clients_that_only_knock(broker: BrokerProcess) -> None:
    for _ in range(1000):
        WireClient(broker.bootstrap).close()
    with WireClient(broker.bootstrap) as client:
        assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE


def test_a_stop_does_not_wait_for_those_who_wait(fresh_broker: BrokerProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient(fresh_broker.bootstrap)) for _ in range(30)]
        create(clients[0], "ending")
        for client in clients[:20]:
            client.post(fetch("ending", max_wait_ms=2**31 - 1), 12)
        for client in clients[20:]:
            client.socket.sendall(b"\0\0\1")
        assert clients[19].is_silent()
        assert fresh_broker.stop() == 0
        assert all(client.is_closed() for client in clients)
    assert "Traceback" not in fresh_broker.log()


def test_a_reset_in_the_middle_of_an_answer(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
        for _ in range(5):
            append(client, topic, batch(bytes(900_000)))
        for _ in range(20):
            rude = WireClient(broker.bootstrap, receive_buffer=4096)
            rude.post(fetch(topic, partition_max_bytes=5 * MB), 12)
            rude.receive(1000)
            rude.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rude.close()
        assert append(client, topic, batch()).base_offset == 5
