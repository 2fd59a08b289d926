"""Fetches of very many partitions: read and answered in slices, and as whole as others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from forebay.broker.fetch import large_fetch
from forebay.broker.fetch.large_fetch import LargeFetch
from forebay.broker.handlers import fetch as handler
from forebay.broker.net.scheduling.slices import Slices
from forebay.errors import ErrorCode
from forebay.storage.log.log import Log
from forebay.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from forebay.wire.messages.fetch import FetchRequest
from support.access.principals import ACCESS, KnownClient
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import FETCH, append, batch, create, fetch, values_of

MANY = 120


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, {**ACCESS, "auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "AT_ONCE_MAX", 60)
    monkeypatch.setattr(large_fetch, "_IN_A_STEP", 10)


@pytest.fixture
def admin(broker: LocalBroker) -> Iterator[KnownClient]:
    with KnownClient(broker) as client:
        create(client, "t", MANY)
        yield client


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each turn that large work has waited for. Its slices are as short as can be."""
    taken: list[None] = []
    following = Slices.next

    async def counted(slices: Slices, *user: str) -> None:
        taken.append(None)
        await following(slices, *user)

    monkeypatch.setattr(Slices, "next", counted)
    monkeypatch.setattr(Slices, "is_over", property(lambda _: True))
    return taken


def every(**how: Any) -> FetchRequest:
    return fetch("t", partitions=range(MANY), **how)


def test_a_fetch_of_many_partitions_is_read_and_answered_in_slices(
    admin: KnownClient, turns: list[None]
) -> None:
    append(admin, "t", batch(b"x"), partition=MANY - 1)
    turns.clear()
    (topic,) = admin.call(every(), FETCH).responses
    assert [each.partition_index for each in topic.partitions] == list(range(MANY))
    assert values_of(topic.partitions[-1].records) == [(0, b"x")]
    assert len(turns) > 2 * MANY / 10, "some of them for each part that is read, and that is answered"


def test_a_small_request_that_continues_a_large_session_is_handled_in_slices(
    admin: KnownClient, turns: list[None]
) -> None:
    begun = admin.call(every(session_epoch=0), FETCH)
    assert begun.session_id and sum(len(topic.partitions) for topic in begun.responses) == MANY
    append(admin, "t", batch(b"x"), partition=70)
    turns.clear()
    found = admin.call(fetch("t", partitions=(), session_id=begun.session_id, session_epoch=1), FETCH)
    assert [(each.partition_index, values_of(each.records)) for each in found.responses[0].partitions] == [
        (70, [(0, b"x")])
    ]
    assert len(turns) > 2 * MANY / 10


def test_it_waits_for_messages_and_for_as_many_as_it_wants(broker: LocalBroker, admin: KnownClient) -> None:
    one = len(batch(b"x"))
    with KnownClient(broker) as reader:
        reader.post(every(max_wait_ms=600_000, min_bytes=2 * one), FETCH)
        append(admin, "t", batch(b"x"), partition=3)
        assert reader.is_silent()
        append(admin, "t", batch(b"x"), partition=90)
        (topic,) = reader.read().responses
        assert [each.partition_index for each in topic.partitions if each.records] == [3, 90]


@pytest.mark.parametrize("committed", [False, True])
def test_it_does_not_wait_for_what_came_while_it_read_the_others(
    broker: LocalBroker, admin: KnownClient, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    begun, go_on, read_steps = Event(), Event(), LargeFetch._read_steps

    def interrupted(fetch: LargeFetch) -> Iterator[None]:
        steps = read_steps(fetch)
        yield next(steps)
        begun.set()
        while not go_on.is_set():
            yield
        yield from steps

    monkeypatch.setattr(LargeFetch, "_read_steps", interrupted)
    with KnownClient(broker) as reader:
        reader.post(every(max_wait_ms=600_000, isolation_level=int(committed)), FETCH)
        assert begun.wait(30)
        append(admin, "t", batch(b"x"), partition=3)
        go_on.set()
        (topic,) = reader.read().responses
        assert [each.partition_index for each in topic.partitions if each.records] == [3]


def test_it_looks_again_at_what_was_deleted_while_it_read_the_others(
    broker: LocalBroker, admin: KnownClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(admin, "gone")
    begun, go_on, read_steps = Event(), Event(), LargeFetch._read_steps

    def interrupted(fetch: LargeFetch) -> Iterator[None]:
        yield from read_steps(fetch)
        begun.set()
        while not go_on.is_set():
            yield

    monkeypatch.setattr(LargeFetch, "_read_steps", interrupted)
    wanted = every(max_wait_ms=600_000)
    wanted.topics.extend(fetch("gone").topics)
    with KnownClient(broker) as reader:
        reader.post(wanted, FETCH)
        assert begun.wait(30)
        delete = DeleteTopicsRequest(topics=[], topic_names=["gone"], timeout_ms=30_000)
        assert admin.call(delete, 5).responses[0].error_code == ErrorCode.NONE
        go_on.set()
        errors = {each.error_code for topic in reader.read().responses for each in topic.partitions}
        assert errors == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_it_ends_its_wait_for_another_request_and_with_its_time(
    broker: LocalBroker, admin: KnownClient
) -> None:
    admin.post(every(max_wait_ms=600_000), FETCH)
    admin.post(ApiVersionsRequest(), 3)
    assert sum(len(topic.partitions) for topic in admin.read().responses) == MANY
    assert isinstance(admin.read(), ApiVersionsResponse)
    assert sum(len(topic.partitions) for topic in admin.call(every(max_wait_ms=50), FETCH).responses) == MANY
    with KnownClient(broker) as gone:
        gone.post(every(max_wait_ms=600_000), FETCH)
    append(admin, "t", batch(b"x"))  # wakes nobody who is not there any more


def test_views_among_many_partitions_are_read(broker: LocalBroker, admin: KnownClient) -> None:
    create(admin, "v", -1, forebay_view_source="t", forebay_view_where="key = 'key'")
    append(admin, "t", batch(b"x"), partition=80)
    (topic,) = admin.call(fetch("v", partitions=range(MANY)), FETCH).responses
    assert len(topic.partitions) == MANY and {each.error_code for each in topic.partitions} == {0}
    assert values_of(topic.partitions[80].records) == [(0, b"x")]


def test_a_session_of_partitions_that_are_made_up_is_not_kept(
    broker: LocalBroker, admin: KnownClient
) -> None:
    """Each takes memory for as long as it is used."""
    with KnownClient(broker, "User:eve") as eve:
        for name in ("t", "made-up"):
            found = eve.call(fetch(name, partitions=range(3_000), session_epoch=0), FETCH)
            assert found.session_id == 0
            assert len(found.responses[0].partitions) == 3_000
            assert {each.error_code for each in found.responses[0].partitions} == {
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
            }
        sessions = broker.on_loop(
            lambda node: (len(node.fetch.sessions), node.fetch.sessions.partition_count)
        )
        assert sessions == (0, 0)
    begun = admin.call(fetch("t", session_epoch=0), FETCH)
    grown = fetch("none", partitions=range(3_000), session_id=begun.session_id, session_epoch=1)
    assert admin.call(grown, FETCH).error_code == ErrorCode.NONE
    again = fetch("none", partitions=(), session_id=begun.session_id, session_epoch=2)
    assert admin.call(again, FETCH).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_message_makes_a_fetch_that_waits_look_at_one_partition(
    broker: LocalBroker, admin: KnownClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at all that it waits for: many such fetches may wait, and none of them may be answered."""
    reads: list[Log] = []
    read = Log.read

    def counted(log: Log, *args: Any, **how: Any) -> Any:
        reads.append(log)
        return read(log, *args, **how)

    with KnownClient(broker) as reader:
        wait = fetch("t", partitions=range(50), max_wait_ms=600_000, min_bytes=1 << 20, isolation_level=1)
        reader.post(wait, FETCH)
        assert reader.is_silent()
        monkeypatch.setattr(Log, "read", counted)
        broker.on_loop(_wait_for_what_is_readable)
        for number in range(3):
            append(admin, "t", batch(b"x"), partition=number)
        assert reader.is_silent()
        assert len(reads) <= 3, "one for each message"


def _wait_for_what_is_readable(node: Any) -> None:
    """As fetches of replicated partitions do: not all that comes can be read."""
    for wait in node.partitions.held("t", 0).waiters:
        wait._recount.__self__._early = True
