"""Batches for a folded partition, when something changes while those before them are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay.broker.cluster.peers import peer_connection
from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.folds.handovers import Handovers, Taker, folded_request
from forebay.core.partition.folds.aliases import alias_of
from forebay.core.partition.folds.closed_partition import PassOn
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader, build_batch, read_header
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.folded_produce import FoldedProduceResponse
from forebay.wire.records import Record

TOPIC_ID = bytes(range(16))
OLD, NEW, HERE = 1, 2, 3


class Answers:
    """The other brokers: each request is answered when a test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, asyncio.Future[FoldedProduceResponse]]] = []
        self.connection = object()

    async def ask(
        self, node_id: int, _request: Any, *, sent_by: Callable[[object], None], **_: Any
    ) -> FoldedProduceResponse:
        sent_by(self.connection)
        answer: asyncio.Future[FoldedProduceResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((node_id, answer))
        return await answer


class Spawned:
    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any]] = []

    def spawn(self, work: Any, _doing: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


def batch(sequence: int, producer: int = 7, size: int = 1) -> memoryview:
    data = build_batch(
        [Record(0, 1000, None, b"v" * size)],
        base_offset=0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return memoryview(bytes(data))


def header(sequence: int, producer: int = 7) -> BatchHeader:
    return read_header(batch(sequence, producer))


class Place:
    """A broker that hands over batches, for partition 1 of a topic."""

    def __init__(self) -> None:
        self.peers = Answers()
        self._background = Spawned()
        peers: Any = self.peers
        background: Any = self._background
        self.handovers = Handovers(peers, background)
        self.answered: list[tuple[int, int]] = []
        """Sequences, with the error codes."""

    def send(self, node_id: int, sequence: int, producer: int = 7, index: int = 1, size: int = 1) -> None:
        data = batch(sequence, producer, size)
        self.handovers.check(TOPIC_ID, read_header(data), Taker(node_id, index))
        self.handovers.send(
            node_id,
            folded_request(data, PassOn(), TOPIC_ID, index),
            lambda response: self.answered.append((sequence, response.error_code)),
        )

    def is_refused(self, node_id: int, sequence: int, producer: int = 7, index: int = 1) -> bool:
        to = Taker(node_id, index)
        try:
            if node_id == HERE:
                self.handovers.taken_here(TOPIC_ID, header(sequence, producer), to)
            else:
                self.handovers.check(TOPIC_ID, header(sequence, producer), to)
        except KafkaError as error:
            return error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return False

    async def answer(self, number: int, outcome: FoldedProduceResponse | Exception | None = None) -> None:
        future = self.peers.asked[number][1]
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome or FoldedProduceResponse())
        await self._background.tasks[number]

    async def done(self) -> None:
        await asyncio.gather(*self._background.tasks)


async def test_a_batch_waits_until_those_before_it_are_answered_elsewhere() -> None:
    place = Place()
    place.send(OLD, 0)
    assert place.is_refused(NEW, 1) and place.is_refused(HERE, 1), "at once, before the first is even sent"
    place.send(OLD, 1)
    await asyncio.sleep(0)
    assert place.is_refused(NEW, 2)
    assert not place.is_refused(NEW, 2, producer=8), "of another producer"
    await place.answer(0)
    assert place.is_refused(NEW, 2)
    place.send(NEW, 0)  # sent again by a client that has given up the first answer
    await asyncio.sleep(0)
    assert not place.is_refused(NEW, 1) and place.is_refused(HERE, 1)
    await place.answer(1)
    assert place.is_refused(HERE, 1), "an answer of the old leader ends nothing"
    assert not place.is_refused(HERE, 0)
    assert not place.is_refused(HERE, 1)
    await place.answer(2)
    assert place.answered == [(0, 0), (1, 0), (0, 0)]


async def test_it_waits_also_if_the_fold_or_the_partition_is_another_one() -> None:
    place = Place()
    by_first, by_second = (alias_of(7, 5, generation) for generation in (1, 2))
    place.send(OLD, 0, by_first)
    assert place.is_refused(NEW, 1, by_second) and place.is_refused(HERE, 1, by_second)
    assert place.is_refused(OLD, 1, by_second, index=3)
    assert not place.is_refused(NEW, 1, alias_of(7, 6, 1)), "the client has named another"
    assert not place.is_refused(OLD, 1, by_second)
    await asyncio.sleep(0)
    await place.answer(0)
    assert not place.is_refused(NEW, 1, by_second)


async def test_which_partitions_have_batches_under_way() -> None:
    place = Place()
    place.send(OLD, 0, alias_of(7, 5, 1))
    assert place.handovers.has_under_way(TOPIC_ID, {4, 5})
    assert not place.handovers.has_under_way(TOPIC_ID, {1, 6})
    assert not place.handovers.has_under_way(bytes(16), {5})
    await asyncio.sleep(0)
    await place.answer(0)
    assert not place.handovers.has_under_way(TOPIC_ID, {5})


async def test_a_handover_that_fails_holds_nothing_up() -> None:
    place = Place()
    place.send(OLD, 0)
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError):
        await place.answer(0, RuntimeError("a bug"))
    assert not place.is_refused(NEW, 1)


async def test_what_is_sent_behind_a_batch_does_not_leave_by_another_connection() -> None:
    """The one before is lost, and its client does not know it yet."""
    place, lost = Place(), KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection broke")
    place.send(OLD, 0)
    await asyncio.sleep(0)
    place.peers.connection = object()
    place.send(OLD, 1)
    place.send(OLD, 2)
    place.send(OLD, 0, producer=8)
    await asyncio.sleep(0)
    assert len(place.peers.asked) == 2, "only that of the other producer has left"
    place.peers.asked[1][1].set_result(FoldedProduceResponse())
    await place.answer(0, lost)
    await place.done()
    assert sorted(place.answered) == [
        (0, 0),
        *((sequence, ErrorCode.REQUEST_TIMED_OUT) for sequence in range(3)),
    ]
    for sequence in range(2):
        place.send(OLD, sequence)
    await asyncio.sleep(0)
    assert len(place.peers.asked) == 4, "both are sent again"


async def test_what_has_not_left_yet_does_not_follow_a_batch_that_was_refused() -> None:
    """As where a connection has too many requests that are not answered, and then has one less."""
    place, too_many = Place(), KafkaError(ErrorCode.NETWORK_EXCEPTION, "too many are unanswered")
    place.send(OLD, 0)
    await asyncio.sleep(0)
    place.peers.asked[0][1].set_exception(too_many)
    place.send(OLD, 1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(place.peers.asked) == 1
    assert [code for _, code in place.answered] == [ErrorCode.REQUEST_TIMED_OUT] * 2


class LoggingIn:
    """A connection whose login has to be renewed, which waits for the test."""

    def __init__(self) -> None:
        self.may_log_in = asyncio.Event()
        stream: Any = SimpleNamespace(
            peer=("127.0.0.1", 1), on_readable=lambda _: None, send=len, close=lambda: None
        )
        connection: Any = PeerConnection(stream, client_id="test", response_bytes_max=1)
        connection._renew_at, connection._new_login, connection._log_in = 0.0, object, self._log_in
        self.connection = connection

    async def _log_in(self, _: object) -> None:
        await self.may_log_in.wait()
        self.connection._renew_at = asyncio.get_running_loop().time() + 60

    async def open(self, *_: Any, **__: Any) -> Any:
        return self.connection

    def peers(self) -> Peers:
        metadata: Any = SimpleNamespace(image=SimpleNamespace(brokers={OLD: SimpleNamespace(id=OLD)}))
        settings: Any = SimpleNamespace(current=SimpleNamespace(socket=SimpleNamespace(request_max_bytes=1)))
        lease: Any = SimpleNamespace(epoch=1)
        dialing: Any = self
        return Peers(node_id=HERE, settings=settings, metadata=metadata, lease=lease, dialing=dialing)


async def test_nor_does_it_if_both_have_waited_for_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first does not leave, because too many requests are unanswered, and then there is one less."""
    monkeypatch.setattr(peer_connection, "_UNANSWERED_MAX", 1)
    line, spawned, answered = LoggingIn(), Spawned(), list[tuple[int, int]]()
    connection, background = line.connection, cast(Any, spawned)
    handovers = Handovers(line.peers(), background)
    connection.post(ApiVersionsRequest(), lambda _: None, lambda _: None)

    def done(sequence: int, response: FoldedProduceResponse) -> None:
        answered.append((sequence, response.error_code))
        connection._waiters.clear()

    for sequence in range(2):
        request = folded_request(batch(sequence), PassOn(), TOPIC_ID, 1)
        handovers.send(OLD, request, partial(done, sequence))
    for _ in range(10):
        await asyncio.sleep(0)
    line.may_log_in.set()
    for _ in range(10):
        await asyncio.sleep(0)
    left = len(connection._waiters)
    connection.close()
    await asyncio.gather(*spawned.tasks)
    assert not left
    assert answered == [(0, ErrorCode.REQUEST_TIMED_OUT), (1, ErrorCode.REQUEST_TIMED_OUT)]


async def test_a_broker_that_does_not_answer_costs_no_more_memory_than_so_much() -> None:
    place, size = Place(), 1 << 20
    for number in range(64):
        place.send(OLD, 0, producer=number, size=size)
    with pytest.raises(KafkaError, match="64 MB") as refusal:
        place.send(OLD, 0, producer=64, size=size)
    assert refusal.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    place.send(NEW, 0, producer=64)
    await asyncio.sleep(0)
    await place.answer(0)
    place.send(OLD, 0, producer=64, size=size)
