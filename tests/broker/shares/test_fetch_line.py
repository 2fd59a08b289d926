"""How often waiting share fetches look for messages: counted, because a look in vain shows nowhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.broker.shares.requests.share_fetch import ShareFetch
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.share_member import RECORD_LIMIT, ShareMember, ack, configure, held, join
from support.clients.wire_client import WireClient, append, batch, create
from support.waiting import Patience

MEMBERS = 50


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(local: LocalBroker) -> Iterator[WireClient]:
    with WireClient(local.bootstrap) as client:
        yield client


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[ShareFetch]:
    """Every look of a share fetch at its partitions."""
    found: list[ShareFetch] = []
    look = ShareFetch._acquire

    def counted(self: ShareFetch, *args: object) -> bool:
        found.append(self)
        return look(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ShareFetch, "_acquire", counted)
    return found


@pytest.fixture
def waiting(local: LocalBroker, client: WireClient, topic: str) -> Iterator[list[ShareMember]]:
    """Members whose fetches wait, in the order in which they came."""
    topic_id = made(client, topic)
    with ExitStack() as connections:
        members = [
            ShareMember(connections.enter_context(WireClient(local.bootstrap)), topic, topic_id)
            for _ in range(MEMBERS)
        ]
        for number, member in enumerate(members, 1):
            member.fetch(wait_ms=1)
            member.post_fetch(records=1, mode=RECORD_LIMIT)
            until_waiting(local, number)
        yield members


def made(client: WireClient, topic: str, **settings: str) -> bytes:
    topic_id = create(client, topic, 1)
    configure(client, topic, **settings)
    join(client, topic, topic)
    return topic_id


def waits(local: LocalBroker) -> int:
    return local.on_loop(lambda node: len(next(iter(node.shares.shares)).waiters))


def until_waiting(local: LocalBroker, fetches: int) -> None:
    patience = Patience(f"{fetches} fetches wait")
    while (seen := waits(local)) != fetches:
        patience.check(seen)
        time.sleep(0.001)


def test_a_message_makes_one_of_fifty_waiting_fetches_look(
    local: LocalBroker,
    client: WireClient,
    topic: str,
    waiting: list[ShareMember],
    looks: list[ShareFetch],
) -> None:
    append(client, topic, batch(b"x"))
    assert [each.value for each in held(waiting[0].client.read())] == [b"x"]
    until_waiting(local, MEMBERS - 1)
    assert len(looks) == 1


def test_as_many_fetches_look_as_get_something_and_the_first_to_wait_is_the_first_to_get(
    client: WireClient, topic: str, waiting: list[ShareMember], looks: list[ShareFetch]
) -> None:
    append(client, topic, batch(b"a", b"b", b"c"))
    assert [held(each.client.read())[0].value for each in waiting[:3]] == [b"a", b"b", b"c"]
    assert len(looks) == 3


def test_a_released_message_makes_one_waiting_fetch_look(
    client: WireClient, topic: str, waiting: list[ShareMember], looks: list[ShareFetch]
) -> None:
    append(client, topic, batch(b"x"))
    assert len(held(waiting[0].client.read())) == 1
    waiting[0].client.close()  # its session ends, and what it has acquired is released
    (again,) = held(waiting[1].client.read())
    assert (again.value, again.deliveries) == (b"x", 2)
    assert len(looks) == 2


def test_a_line_without_fetches_leaves_the_partition_with_the_next_message(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    member = ShareMember(client, topic, made(client, topic))
    member.fetch(wait_ms=1)
    member.fetch(wait_ms=1)

    def watching(node: Node) -> int:
        return len(node.partitions.get(topic, 0).waiters)

    assert waits(local) == 0
    append(client, topic, batch(b"x"))
    patience = Patience("the line has left the partition")
    while local.on_loop(watching):
        patience.check()
    assert [each.value for each in member.take()] == [b"x"]


def test_a_member_that_fills_the_window_acknowledges_and_acquires_with_one_look(
    client: WireClient, topic: str, looks: list[ShareFetch]
) -> None:
    member = ShareMember(client, topic, made(client, topic, share_partition_max_record_locks="100"))
    for _ in range(3):
        append(client, topic, batch(*[b"x"] * 100))
    first = member.take(records=100)
    looks.clear()
    for begin in (0, 100):
        answer = member.fetch(acks={0: [ack(begin, begin + 99)]}, records=100)
        assert [each.offset for each in held(answer)] == list(range(begin + 100, begin + 200))
    assert (len(first), len(looks)) == (100, 2)
