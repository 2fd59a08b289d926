"""A mover on a broker: what it repeats, for how long, and under which numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from forebay.broker.background import Background
from forebay.broker.record_moves import live_mover
from forebay.broker.record_moves.live_mover import LiveMover, MoverHost
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.worker_threads import WorkerThreads
from forebay.core.record_moves.move import Move
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.brokers.local_cluster import eventually
from support.machines.moving import MOVER, JournalLog, journal_request, mover_state

TOPIC_ID = b"t" * 16
LETTERS = 300


class Journal:
    """The real one, on the event loop of the test."""

    def __init__(self) -> None:
        self.log = JournalLog()
        self.opened = 0

    async def open(self, mover_id: str, term: int) -> Any:
        self.opened += 1
        return mover_state(self.log.ask(journal_request(term)), term)

    async def write(self, mover_id: str, state: Any) -> Any:
        return mover_state(self.log.ask(journal_request(state.term, state)), state.term)


@dataclass
class Source:
    """One move, of as many records as it says."""

    waiting: int = 1
    mistakes: int = 0

    async def plan(self) -> Move | None:
        if self.mistakes:
            self.mistakes -= 1
            raise ZeroDivisionError("a mistake")
        if not self.waiting:
            return None
        return Move(topic_id=TOPIC_ID, partition=0, record_count=LETTERS, entries=b"e", revision=0)

    def wants(self, move: Move) -> bool:
        return bool(self.waiting)

    async def records(self, move: Move, *, is_too_large: bool) -> Sequence[Record]:
        value = None if is_too_large else b"v" * 100
        return [Record(n, 0, None, value, [("about", b"%d" % n)]) for n in range(LETTERS)]

    async def confirm(self, move: Move) -> None:
        self.waiting -= 1


@dataclass
class Appends:
    """A target that answers as the test says: with an error, or None."""

    answer: Callable[[BatchHeader], Exception | None] = lambda _: None
    sent: list[BatchHeader] = field(default_factory=list)

    @property
    def numbers(self) -> list[tuple[int, int]]:
        return [(each.producer_id, each.base_sequence) for each in self.sent]

    async def append(self, topic_id: bytes, index: int, batch: bytearray) -> None:
        self.sent.append(read_header(batch))
        error = self.answer(self.sent[-1])
        if error is not None:
            raise error


class ProducerIds:
    def __init__(self) -> None:
        self.given = 0

    async def next(self) -> int:
        self.given += 1
        return self.given


@dataclass
class Image:
    revision: int = 0
    topic_names: dict[bytes, str] = field(default_factory=lambda: {TOPIC_ID: "dead"})

    def may_have(self, topic_id: bytes) -> bool:
        return topic_id in self.topic_names


@dataclass
class Metadata:
    image: Image = field(default_factory=Image)


@dataclass
class Bench:
    journal: Journal
    appends: Appends
    source: Source
    metrics: Metrics
    mover: LiveMover

    async def run(self) -> None:
        self.mover.wake()
        await eventually(lambda: not self.mover.is_at_work)


@asynccontextmanager
async def running() -> AsyncIterator[Bench]:
    journal, appends, source, metrics = Journal(), Appends(), Source(), Metrics()
    workers = WorkerThreads(asyncio.get_running_loop(), ThreadPoolExecutor(1))
    background = Background(metrics)
    parts: Any = {
        "journal": journal,
        "appends": appends,
        "producer_ids": ProducerIds(),
        "metadata": Metadata(),
        "workers": workers,
        "background": background,
    }
    mover = LiveMover(MOVER, 1, source, MoverHost(**parts), wanted=lambda: True, rested=lambda: None)
    async with asyncio.TaskGroup() as tasks:
        background.open(tasks)
        yield Bench(journal, appends, source, metrics, mover)
    workers.close()


def refused(code: ErrorCode) -> KafkaError:
    return KafkaError(code, code.name)


async def test_a_mistake_does_not_end_a_mover() -> None:
    async with running() as bench:
        bench.source.mistakes = 3
        bench.mover.wake()
        await eventually(lambda: bench.mover.problem == "ZeroDivisionError: a mistake")
        await eventually(lambda: not bench.mover.is_at_work)
        assert (bench.metrics.background_failures, bench.source.waiting) == (3, 0)
        assert bench.mover.problem == ""


async def test_a_mistake_in_an_attempt_to_append_changes_no_numbers() -> None:
    async with running() as bench:
        answers = [IndexError(), refused(ErrorCode.NETWORK_EXCEPTION)]
        bench.appends.answer = lambda _: answers.pop() if answers else None
        await bench.run()
        assert bench.appends.numbers == [(1, 0)] * 3


async def test_patience_with_a_target_that_lacks_batches_begins_when_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_mover, "_OUT_OF_ORDER_S", 0.2)
    async with running() as bench:
        loop = asyncio.get_running_loop()
        available_s = loop.time() + 0.4
        answers = [None, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]

        def answer(_: BatchHeader) -> Exception | None:
            if loop.time() < available_s:
                return refused(ErrorCode.LEADER_NOT_AVAILABLE)
            return answers.pop()

        bench.appends.answer = answer
        await bench.run()
        assert set(bench.appends.numbers) == {(1, 0)}
        assert not answers


async def test_patience_with_a_target_that_lacks_batches_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_mover, "_OUT_OF_ORDER_S", 0.01)
    async with running() as bench:
        lost = refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        bench.appends.answer = lambda header: lost if header.producer_id == 1 else None
        await bench.run()
        assert set(bench.appends.numbers) == {(1, 0), (2, 0)}


async def test_a_mover_that_waits_for_long_opens_its_journal_again_and_sends_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_mover, "_REOPEN_S", -1.0)
    async with running() as bench:
        answers = [refused(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3
        bench.appends.answer = lambda _: answers.pop() if answers else None
        await bench.run()
        assert bench.journal.opened == 4
        assert bench.appends.numbers == [(1, 0)] * 4


async def test_what_is_too_large_without_copies_too_is_compressed() -> None:
    async with running() as bench:
        too_large = refused(ErrorCode.MESSAGE_TOO_LARGE)
        bench.appends.answer = lambda header: too_large if header.size > 10 * LETTERS else None
        await bench.run()
        last = bench.appends.sent[-1]
        assert (last.record_count, last.codec) == (LETTERS, Codec.GZIP)
