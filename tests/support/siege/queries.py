"""Attackers that may make and read views: expensive patterns, and small batches that unpack to much."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from forebay.wire.batch import build_batch
from forebay.wire.compression import Codec
from forebay.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from forebay.wire.records import Record
from support.siege.attack import Attack
from support.siege.connection import Stream, call, frame, read_frame
from support.siege.target import ANALYST, BOMBS, TEXTS, VIEWS, Target

PATTERNS = (
    "regexp_like(value.a, 'x{1,1000}y')",
    f"value.a LIKE '%{'_' * 900}y'",
    "regexp_like(value.a, '(x{1,30}){1,30}y')",
    "regexp_like(value.a, 'x{1,100}y')",
    f"value.a LIKE '%{'_' * 100}y'",
    " OR ".join(f"regexp_like(value.a, 'x{{1,50}}{letter}')" for letter in "abcdefghijklmnopqrst"),
)
"""From what no broker should take to what it may have to."""
TEXT_BYTES = 1000
_BATCHES = 20
_WARM_UP_S = 1.0
_FETCHES_PAUSE_S = 0.005


class ViewAttack(Attack):
    """Writes batches to a topic, makes views of it, and reads them without end."""

    logged_in = True
    source: str
    wheres: Sequence[str]
    _made: Sequence[str] = ()
    """The views that the broker has taken."""

    def batches(self) -> list[bytes]:
        raise NotImplementedError

    async def prepare(self) -> None:
        for number in range(len(self.target.open_doors)):
            stream = await self.enter_as(ANALYST, 2 * number)
            try:
                if number == 0:
                    await self._make_views(stream)
                await self._write(stream)
            finally:
                stream.close()
        await asyncio.sleep(_WARM_UP_S)  # until all brokers know the views

    async def _make_views(self, stream: Stream) -> None:
        views = [
            CreatableTopic(
                name=self._view(number),
                num_partitions=-1,
                replication_factor=-1,
                configs=[
                    CreatableTopicConfig(name="forebay.view.source", value=self.source),
                    CreatableTopicConfig(name="forebay.view.where", value=where),
                ],
            )
            for number, where in enumerate(self.wheres)
        ]
        made = await call(
            stream, CreateTopicsRequest(topics=views, timeout_ms=10_000), 4, CreateTopicsResponse
        )
        self._made = [each.name for each in made.topics if not each.error_code]
        self.count("views", len(self._made))
        self.count("views refused", len(views) - len(self._made))

    async def _write(self, stream: Stream) -> None:
        """To every partition; the one broker that leads it takes the batch, others refuse it."""
        for batch in self.batches():
            for partition in range(len(self.target.open_doors)):
                await stream.send(frame(_produce(self.source, partition, batch), 9))
                await read_frame(stream)
                self.count("bytes", len(batch))

    async def once(self, number: int) -> None:
        stream = await self.enter_as(ANALYST, number)
        view = self._made[number % len(self._made)] if self._made else self.source
        asked = frame(fetch(view, range(len(self.target.open_doors))), 11)
        try:
            while True:
                await stream.send(asked)
                await read_frame(stream)
                self.count("fetches")
                await asyncio.sleep(_FETCHES_PAUSE_S)
        finally:
            stream.close()

    def _view(self, number: int) -> str:
        return f"{VIEWS}{self.name}-{number}"


class Patterns(ViewAttack):
    """Each byte of a text is compared with a thousand states."""

    name, connections = "patterns", 8
    source, wheres = TEXTS, PATTERNS

    def batches(self) -> list[bytes]:
        value = b'{"a": "%s"}' % (b"x" * TEXT_BYTES)
        batch = _batch([value] * 500)
        return [batch] * _BATCHES


class Bombs(ViewAttack):
    """Batches of some kilobytes that unpack to 60 MB, in a few large records, and in many small ones. One
    view shows nothing of them, another one all of the large ones."""

    name, connections = "bombs", 8
    source, wheres = BOMBS, ("value.a = 'y'", "value.a LIKE 'x%'")

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        super().__init__(target, done, share)
        self._large = _batch([b'{"a": "%s"}' % (b"x" * 1_000_000)] * 60, Codec.ZSTD)
        self._small = _batch([b'{"a": 1}'] * 400_000, Codec.ZSTD)

    def batches(self) -> list[bytes]:
        return [self._large, self._small] * 2


def _batch(values: Sequence[bytes], codec: Codec = Codec.NONE) -> bytes:
    now_ms = int(time.time() * 1000)
    return bytes(
        build_batch([Record(at, now_ms, None, value) for at, value in enumerate(values)], codec=codec)
    )


def _produce(topic: str, partition: int, batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    return ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch(topic: str, partitions: Sequence[int]) -> FetchRequest:
    wanted = [
        FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        for partition in partitions
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 25,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )
