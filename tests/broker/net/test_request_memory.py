"""Requests that have not come whole keep a bounded memory, and nobody keeps it from others for long."""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.net import dispatch
from forebay.broker.net.request_memory import QueuedRequest, RequestMemory
from forebay.errors import ErrorCode
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.access.principals import KnownClient
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import log_in, sasl_broker
from support.clients.quota_calls import set_quota
from support.clients.wire_client import (
    FETCH,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    fetch,
    produce,
    read,
)
from support.waiting import Patience

KB = 1024
MB = 1024 * KB
BOUND = {"queued.max.request.bytes": str(MB)}
REQUEST = 512 * KB
OVERSHOOT = REQUEST + 256 * KB
"""One request may go beyond the bound, the last read before it as well, and the first 4 KiB of each."""


def used(broker: LocalBroker) -> int:
    return broker.on_loop(lambda node: node.server.memory.used_bytes)


def strangers_used(broker: LocalBroker) -> int:
    return broker.on_loop(lambda node: node.server.strangers_memory.used_bytes)


def wait_until_nothing_is_held(broker: LocalBroker) -> None:
    """Clients may read an answer before the broker has given back what its request took."""
    patience = Patience("no request takes memory any more")
    while broker.on_loop(lambda node: node.server.memory.used_bytes + node.server.memory.queued_bytes):
        patience.check()


def settle(broker: LocalBroker) -> None:
    """Until the broker has read what it wants to read of what was sent."""
    before = -1
    patience = Patience("the broker reads no more")
    while (now := used(broker)) != before:
        before = now
        for _ in range(5):
            broker.on_loop(lambda _: None)
        patience.check()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", BOUND) as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "t")
        yield broker


def send_but_the_last_byte(client: WireClient, size: int) -> bytes:
    """Announce a request, and send all of it that the broker takes; what is left of it."""
    data = client.frame(produce("t", batch(bytes(size))), PRODUCE)
    client.socket.settimeout(0.2)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < len(data) - 1:
            sent += client.socket.send(data[sent:-1])
    client.socket.settimeout(60)
    return data[sent:]


def test_unfinished_requests_are_bounded_and_all_come_through_in_the_end(broker: LocalBroker) -> None:
    """Without the bound, each would keep its half megabyte; without one that may go on, all would wait."""
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(20)]
        left = [send_but_the_last_byte(client, REQUEST) for client in slow]
        patience = Patience("much of it is kept")
        while used(broker) < MB // 2:
            patience.check()
        settle(broker)
        assert used(broker) < MB + OVERSHOOT
        with WireClient(broker.bootstrap) as small:
            assert small.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
            assert append(small, "t", batch(b"small")).base_offset == 0
            assert read(small, "t").error_code == ErrorCode.NONE
        for client, rest in zip(slow, left, strict=True):
            client.socket.sendall(rest)
        for client in slow:
            assert client.read().responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert used(broker) == 0


def test_a_request_larger_than_all_the_memory_comes_through(broker: LocalBroker) -> None:
    """And the small ones beside it."""
    with WireClient(broker.bootstrap) as large, WireClient(broker.bootstrap) as small:
        rest = send_but_the_last_byte(large, 5 * MB)
        assert len(rest) == 1
        for _ in range(10):
            assert append(small, "t", batch(bytes(1000))).error_code == ErrorCode.NONE
        large.socket.sendall(rest)
        answer = large.read().responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert used(broker) == 0


def test_connections_that_end_give_their_memory_back(broker: LocalBroker) -> None:
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                send_but_the_last_byte(stack.enter_context(WireClient(broker.bootstrap)), REQUEST)
            patience = Patience("some of it is kept")
            while not used(broker):
                patience.check()
        patience = Patience("all of it is back")
        while used(broker):
            patience.check()
    server = broker.node.server
    assert broker.on_loop(lambda _: (server.memory.waiting, server.memory.short)) == (0, False)


def test_a_request_that_does_not_come_whole_in_time_is_ended(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data", {"forebay.request.receive.timeout.ms": "300"}) as broker:
        with WireClient(broker.bootstrap) as client, WireClient(broker.bootstrap) as other:
            create(client, "t")
            send_but_the_last_byte(client, 200 * KB)
            other.socket.sendall(b"\0\0")
            assert client.is_closed() and other.is_closed()
        assert broker.on_loop(lambda node: node.metrics.requests_unfinished) == 2


def test_what_waits_behind_a_long_request_is_not_ended(tmp_path: Path) -> None:
    """It is the broker that does not read on."""
    with local_broker(tmp_path / "data", {"forebay.request.receive.timeout.ms": "1000"}) as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "t")
            behind = client.frame(fetch("t", max_wait_ms=3_000), FETCH)
            second = client.frame(fetch("t", max_wait_ms=1), FETCH)
            client.socket.sendall(behind + second[:-1])
            time.sleep(1.5)  # many times as long as a request may take to come whole
            client.socket.sendall(second[-1:])
            client.read()
            assert client.read().error_code == ErrorCode.NONE
        assert broker.on_loop(lambda node: node.metrics.requests_unfinished) == 0


def test_the_time_in_which_a_request_waits_for_memory_does_not_count(tmp_path: Path) -> None:
    settings = BOUND | {"forebay.request.receive.timeout.ms": "2000"}
    with local_broker(tmp_path / "data", settings) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        memory = broker.node.server.memory
        queued = broker.on_loop(lambda _: QueuedRequest(memory, Sender(memory, "other", 0), 2 * MB))
        data = client.frame(produce("t", batch(bytes(200 * KB))), PRODUCE)
        client.socket.sendall(data[: 100 * KB])
        patience = Patience("it waits for memory")
        while not memory.waiting:
            patience.check()
        time.sleep(2.5)  # longer than a request may take to come whole
        broker.on_loop(lambda _: queued.done())
        time.sleep(1.1)  # longer than it takes until somebody looks for those that are late
        client.socket.sendall(data[100 * KB :])
        assert client.read().responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert broker.on_loop(lambda node: node.metrics.requests_unfinished) == 0


def test_who_keeps_all_the_memory_makes_room_for_another_sender(tmp_path: Path) -> None:
    settings = BOUND | {"forebay.request.receive.timeout.ms": "10000"}
    with local_broker(tmp_path / "data", settings) as broker, contextlib.ExitStack() as stack:
        with WireClient(broker.bootstrap) as client:
            create(client, "t")
        for _ in range(20):
            greedy = stack.enter_context(WireClient(broker.bootstrap, source="127.0.0.2"))
            send_but_the_last_byte(greedy, REQUEST)
        with WireClient(broker.bootstrap, source="127.0.0.3") as modest:
            assert append(modest, "t", batch(bytes(400 * KB))).error_code == ErrorCode.NONE
        assert broker.on_loop(lambda node: node.metrics.requests_unfinished) > 0


@pytest.mark.parametrize("reads", [True, False])
def test_what_is_not_read_because_of_its_own_client_makes_room_for_another_sender(
    tmp_path: Path, reads: bool
) -> None:
    """Requests behind a long poll, or behind answers that nobody takes. They would leave room for one request
    at a time, and a slow one would hold up all others."""
    settings = BOUND | {"forebay.request.receive.timeout.ms": "600000"}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(local_broker(tmp_path / "data", settings))
        modest = stack.enter_context(WireClient(broker.bootstrap, source="127.0.0.3"))
        create(modest, "t")
        append(modest, "t", batch(bytes(500 * KB)))
        memory = broker.node.server.memory
        patience = Patience("most of the memory is used")
        while not memory.short:
            patience.check()
            greedy = stack.enter_context(WireClient(broker.bootstrap, source="127.0.0.2"))
            wanted = fetch("t", 1, max_wait_ms=600_000) if reads else fetch("t")
            frame = greedy.frame(wanted, FETCH)
            greedy.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                greedy.socket.sendall(frame * (120 * KB // len(frame)))
            settle(broker)
        slow: list[WireClient] = []
        patience = Patience("a slow one goes beyond the bound")
        while memory._beyond is None:
            patience.check()
            slow.append(stack.enter_context(WireClient(broker.bootstrap, source="127.0.0.4")))
            send_but_the_last_byte(slow[-1], 110 * KB)
            settle(broker)
        memory._contested_s = 0.0  # only now: setting up all of them may take long
        assert append(modest, "t", batch(bytes(100 * KB))).error_code == ErrorCode.NONE
        assert broker.on_loop(lambda node: node.metrics.requests_unfinished) > 0
        assert all(each.is_silent() for each in slow), "they have their time, and do not hold the most"


def test_strangers_have_a_small_part_and_keep_nobody_from_logging_in(tmp_path: Path) -> None:
    settings = {"queued.max.request.bytes": str(16 * MB)}
    with sasl_broker(tmp_path / "data", settings) as broker, contextlib.ExitStack() as stack:
        for _ in range(200):
            stranger = stack.enter_context(WireClient(broker.bootstrap))
            stranger.socket.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                stranger.socket.sendall(struct.pack(">ihhi", 60 * KB, 36, 2, 1) + bytes(60 * KB - 9))
        assert strangers_used(broker) < MB + 200 * 4 * KB
        assert used(broker) == 0
        with WireClient(broker.bootstrap, source="127.0.0.2") as client:
            assert log_in(client).error_code == 0
            assert client.call(MetadataRequest(topics=None), 12).brokers
        stack.close()
        patience = Patience("all of it is back")
        while strangers_used(broker):
            patience.check()


@pytest.mark.parametrize("size", [3 * MB, 6 * MB])
def test_requests_that_are_handled_in_slices_count_until_they_are_answered(tmp_path: Path, size: int) -> None:
    """The smaller ones are copied; the larger ones have memory of their own."""
    with local_broker(tmp_path / "data", BOUND) as broker, contextlib.ExitStack() as stack:
        name = "x" * (size // 25_000)
        names = [MetadataRequestTopic(name=f"{name}{number:05}") for number in range(25_000)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        clients = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(4)]
        frames = [client.frame(request, 12) for client in clients]
        for client, data in zip(clients, frames, strict=True):
            threading.Thread(target=client.socket.sendall, args=(data,), daemon=True).start()
        memory, most = broker.node.server.memory, list[int]()

        def note() -> None:
            most.append(memory.used_bytes)
            broker.node.loop.call_later(0.001, note)

        broker.on_loop(lambda _: note())
        for client in clients:
            assert len(client.read().topics) == len(names)
        assert size < max(most) < MB + 2 * len(frames[0]) + OVERSHOOT
        wait_until_nothing_is_held(broker)
        assert broker.on_loop(lambda _: memory.waiting) == 0


def test_a_request_that_is_decoded_at_once_and_handled_in_slices_counts_too(tmp_path: Path) -> None:
    """It has few elements, but they may be long."""
    with local_broker(tmp_path / "data", BOUND) as broker, WireClient(broker.bootstrap) as client:
        memory, most = broker.node.server.memory, list[int]()
        slices = broker.node._large_requests.slices
        give = slices._give

        def note_and_give() -> None:
            most.append(memory.queued_bytes)
            give()

        broker.on_loop(lambda _: setattr(slices, "_give", note_and_give))
        names = [MetadataRequestTopic(name="x" * 1_100 + str(number)) for number in range(1_000)]
        assert len(client.call(MetadataRequest(topics=names), 12).topics) == len(names)
        assert max(most) > MB
        wait_until_nothing_is_held(broker)


def test_requests_that_wait_for_what_their_client_owes_make_room_for_another_sender(tmp_path: Path) -> None:
    settings = BOUND | {
        "forebay.request.receive.timeout.ms": "10000",
        "forebay.quota.throttle.max.ms": "600000",
    }
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(local_broker(tmp_path / "data", settings))
        admin = stack.enter_context(KnownClient(broker))
        create(admin, "t")
        set_quota(admin, {"user": "ada"}, request_percentage=1e-6)
        stack.enter_context(KnownClient(broker, "User:ada")).call(MetadataRequest(topics=[]), 9)
        names = [MetadataRequestTopic(name="x" * 30_000) for _ in range(4)]
        memory = broker.node.server.memory
        patience = Patience("all of the memory is used")
        while not memory.short:
            patience.check()
            client = stack.enter_context(KnownClient(broker, "User:ada"))
            client.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                client.post(MetadataRequest(topics=names), 9)
        for _ in range(5):
            assert append(admin, "t", batch(bytes(300 * KB))).error_code == ErrorCode.NONE
        assert broker.on_loop(lambda node: node.metrics.requests_unfinished) > 0


def test_a_large_fetch_that_waits_for_messages_keeps_no_memory_of_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "AT_ONCE_ELEMENTS_MAX", 100)
    with local_broker(tmp_path / "data", BOUND) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 200)
        client.post(fetch("t", partitions=range(200), max_wait_ms=600_000), FETCH)
        patience = Patience("it waits for messages")
        while not broker.on_loop(lambda node: node._large_requests._room._idle):
            patience.check()
        assert used(broker) == 0


# -- the accounts --------------------------------------------------------------------------------------------


class Sender:
    """A connection that receives requests of some size, a piece at a time."""

    def __init__(self, memory: RequestMemory, sender: str, wants: int) -> None:
        self._memory = memory
        self.sender = sender
        self.wants = wants
        self.held_bytes = 0
        self.held_since = 0.0
        self.is_held_back = self.is_stalled = False
        self.waits = False

    def memory_granted(self) -> None:
        self.waits = False

    def receive(self, piece: int) -> bool:
        """Whether the request is whole."""
        self.waits = not self._memory.ask(self, min(self.held_bytes + piece, self.wants), self.wants)
        if self.held_bytes == self.wants:
            self._memory.release(self)
            return True
        return False


def size(choose: random.Random) -> int:
    """Small ones, and some that are larger than the memory."""
    return choose.randrange(1, choose.choice([100 * KB, 500 * KB, 3 * MB]))


@pytest.mark.parametrize("seed", range(60))
def test_every_request_comes_through_whatever_the_order(seed: int) -> None:
    choose = random.Random(seed)
    bound = choose.choice([1, 2, 5]) * MB
    memory = RequestMemory(bound, timeout_s=30, contested_s=3)
    senders = [Sender(memory, f"user-{choose.randrange(3)}", size(choose)) for _ in range(20)]
    under_way, steps = list(senders), 0
    while under_way:
        steps += 1
        assert steps < 10_000, "they wait for each other"
        able = [each for each in under_way if not each.waits]
        assert able, "all of them wait"
        sender = choose.choice(able)
        if choose.random() < 0.05:
            memory.release(sender)  # it has gone
            under_way.remove(sender)
        elif sender.receive(choose.randrange(1, MB)):
            under_way.remove(sender)
        held = [each.held_bytes for each in senders]
        assert memory.used_bytes == sum(held)
        assert memory.used_bytes <= max(bound + bound // 8, 3 * MB + 2 * (bound // 8))
        assert memory.waiting == sum(each.waits for each in senders)
    assert memory.used_bytes == memory.waiting == 0


def test_the_time_in_which_a_request_is_not_read_does_not_count() -> None:
    memory = RequestMemory(MB, timeout_s=30, contested_s=3)
    sender = Sender(memory, "user", MB)
    sender.receive(1000)
    sender.is_held_back = True
    assert memory.overdue(100.0) == []
    sender.is_held_back = False
    assert memory.overdue(129.0) == []
    assert memory.overdue(131.0) == [sender]


def test_memory_is_contested_between_senders_only() -> None:
    memory = RequestMemory(MB, timeout_s=30, contested_s=3)
    first, second, third = (Sender(memory, "greedy", 2 * MB) for _ in range(3))
    for each in (first, second, third):
        each.receive(600 * KB)
    assert third.waits and not list(memory.contested(100.0))
    other = Sender(memory, "modest", MB)
    other.receive(10 * KB)
    assert other.waits
    assert not list(memory.contested(2.0)), "they have a little time"
    ended = []
    for holder in memory.contested(4.0):
        ended.append(holder)
        memory.release(holder)
    assert ended == [first], "no more than it takes"
    assert not other.waits


def test_while_much_is_queued_none_goes_beyond_the_bound() -> None:
    memory = RequestMemory(MB, timeout_s=30, contested_s=3)
    queued = QueuedRequest(memory, Sender(memory, "user", 0), 2 * MB)
    sender = Sender(memory, "other", 2 * MB)
    sender.receive(10 * KB)
    assert sender.waits
    assert memory.overdue(100.0) == [] and not list(memory.contested(100.0)), "it is the broker's turn"
    queued.done()
    assert not sender.waits and (memory.used_bytes, memory.queued_bytes) == (10 * KB, 0)


def test_a_large_request_goes_beyond_the_bound_when_little_else_is_held() -> None:
    memory = RequestMemory(8 * MB, timeout_s=30, contested_s=3)
    large = Sender(memory, "large", 20 * MB)
    under_way = [Sender(memory, "other", MB) for _ in range(2)]
    queued = QueuedRequest(memory, Sender(memory, "queued", 0), 2 * MB)
    for each in under_way:
        each.receive(MB - 1)
    large.receive(10 * MB)
    newcomer = Sender(memory, "late", MB)
    newcomer.receive(1000)
    assert large.waits and newcomer.waits, "nobody begins while it waits"
    assert under_way[0].receive(1), "who has begun goes on"
    assert large.waits, "more than an eighth is queued"
    queued.done()
    assert not large.waits and not newcomer.waits and memory.used_bytes < 12 * MB


def test_large_requests_that_fit_together_come_together() -> None:
    memory = RequestMemory(8 * MB, timeout_s=30, contested_s=3)
    first, second, third = (Sender(memory, "user", 3 * MB) for _ in range(3))
    for each in (first, second, third):
        each.receive(KB)
    assert (first.waits, second.waits, third.waits) == (False, False, True)
    assert first.receive(3 * MB) and not third.waits


def test_without_a_bound_nobody_waits() -> None:
    memory = RequestMemory(-1, timeout_s=30, contested_s=3)
    sender = Sender(memory, "user", 1 << 40)
    assert sender.receive(1 << 40)
    assert not memory.short
