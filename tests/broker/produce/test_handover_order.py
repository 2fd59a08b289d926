"""Batches for a folded partition whose taker gets another leader while some of them are under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.broker.folds.handovers import Handovers, folded_request
from forebay.core.partition.folds.closed_partition import PassOn
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader, build_batch, read_header
from forebay.wire.messages.folded_produce import FoldedProduceResponse
from forebay.wire.records import Record

TOPIC_ID = bytes(range(16))
OLD, NEW, HERE = 1, 2, 3


class Answers:
    """The other brokers: each request is answered when a test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, asyncio.Future[FoldedProduceResponse]]] = []

    async def ask(self, node_id: int, _request: Any, **_: Any) -> FoldedProduceResponse:
        answer: asyncio.Future[FoldedProduceResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((node_id, answer))
        return await answer


class Spawned:
    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any]] = []

    def spawn(self, work: Any, _doing: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


def batch(sequence: int, producer: int = 7) -> memoryview:
    data = build_batch(
        [Record(0, 1000, None, b"v")],
        base_offset=0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return memoryview(bytes(data))


def header(sequence: int, producer: int = 7) -> BatchHeader:
    return read_header(batch(sequence, producer))


async def test_a_batch_waits_until_those_before_it_are_answered_elsewhere() -> None:
    peers: Any = Answers()
    background: Any = Spawned()
    handovers = Handovers(peers, background)
    answered: list[int] = []

    def send(node_id: int, sequence: int) -> None:
        handovers.check_order(TOPIC_ID, header(sequence), node_id)
        request = folded_request(batch(sequence), PassOn(), TOPIC_ID, 0)
        handovers.send(node_id, request, lambda _: answered.append(sequence))

    def is_refused(node_id: int, sequence: int, producer: int = 7) -> bool:
        try:
            handovers.check_order(TOPIC_ID, header(sequence, producer), node_id)
        except KafkaError as error:
            return error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return False

    async def answer(number: int) -> None:
        peers.asked[number][1].set_result(FoldedProduceResponse())
        await background.tasks[number]

    send(OLD, 0)
    assert is_refused(NEW, 1) and is_refused(HERE, 1), "at once, before the first is even sent"
    send(OLD, 1)
    await asyncio.sleep(0)
    assert is_refused(NEW, 2)
    assert not is_refused(NEW, 2, producer=8), "of another producer"
    await answer(0)
    assert is_refused(NEW, 2)
    send(NEW, 0)  # sent again by a client that has given up the first answer
    await asyncio.sleep(0)
    assert not is_refused(NEW, 1) and is_refused(HERE, 1)
    await answer(1)
    assert is_refused(HERE, 1), "an answer of the old leader ends nothing"
    handovers.taken_here(TOPIC_ID, header(0))
    assert not is_refused(HERE, 1)
    await answer(2)
    assert answered == [0, 1, 0]


async def test_a_handover_that_fails_holds_nothing_up() -> None:
    peers: Any = Answers()
    background: Any = Spawned()
    handovers = Handovers(peers, background)
    handovers.send(OLD, folded_request(batch(0), PassOn(), TOPIC_ID, 0), lambda _: None)
    await asyncio.sleep(0)
    peers.asked[0][1].set_exception(RuntimeError("a bug"))
    with pytest.raises(RuntimeError):
        await background.tasks[0]
    handovers.check_order(TOPIC_ID, header(1), NEW)
