"""One life of one consumer in a group: reads, commits, and writes down what it does.

What a member begins with is asked of the broker each time partitions are assigned to it, so that the history
holds every committed offset that was seen, and from where on each assignment has to be read without a gap.
"""

from __future__ import annotations

import itertools
import random
import struct
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from support.chaos.actors import QUICK, within
from support.chaos.history import Begin, Commit, Found, History, Place, Read

COMMITTED_SECONDS = 5.0
ANSWER_SECONDS = 20.0
SESSION = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 200}
"""Of classic groups; of the others the broker decides."""


def generation_of(consumer: Consumer) -> int:
    """Of a classic group. The library tells it in a form meant for transactions only: a magic text, then the
    number."""
    generation: int = struct.unpack_from("=i", consumer.consumer_group_metadata(), 7)[0]
    return generation


class Membership:
    """One life of one consumer in a group."""

    _numbers = itertools.count()

    def __init__(
        self, name: str, bootstrap: str, history: History, group: str, topics: list[str], **settings: Any
    ) -> None:
        self.history = history
        self.group = group
        self.positions: dict[Place, int] = {}
        self._name = f"{name}#{next(self._numbers)}"
        self._spans = itertools.count()
        self.span = ""
        self._problem: KafkaException | None = None
        self._incremental = settings.get("group.protocol") == "consumer"
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "max.poll.interval.ms": 6_000,
                **({} if self._incremental else SESSION),
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                **QUICK,
                **settings,
            }
        )
        self.consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def poll(self, timeout_s: float) -> Any:
        """One message, written down as read."""
        message = self.consumer.poll(timeout_s)
        if self._problem is not None:
            raise self._problem
        if message is None or message.error() is not None:
            return None
        place = (message.topic() or "", message.partition() or 0)
        offset = message.offset() or 0
        self.positions[place] = offset + 1
        self.history.reads.append(
            Read(
                self.span,
                place,
                offset,
                message.value() or b"",
                self.history.tick(),
                group=self.group,
                # With KIP-848 a member's epoch may rise while a partition is on its way to the program, which
                # then reads it in an epoch in which it is somebody else's already: see `Watcher`.
                generation=None if self._incremental else generation_of(self.consumer),
                member=self._name,
            )
        )
        return message

    def commit(self) -> None:
        commits = self.begin_commits()
        try:
            offsets = self.offsets()
            done = within(ANSWER_SECONDS, lambda: self.consumer.commit(offsets=offsets, asynchronous=False))
        except KafkaException:
            return  # nobody knows whether it was done
        stored = {(each.topic, each.partition) for each in done if each.error is None}
        for each in commits:
            if each.place in stored:
                self.history.acknowledge(each)

    def offsets(self) -> list[TopicPartition]:
        """Where it would read on, as the client library wants to hear it."""
        return [TopicPartition(*place, offset) for place, offset in self.positions.items()]

    def take_turn(self, chance: random.Random) -> None:
        """Read a while, and now and then commit."""
        for _ in range(chance.randrange(1, 60)):
            if self.poll(0.05) is None:
                break
        if self.positions and chance.random() < 0.3:
            self.commit()

    def begin_commits(self, transaction: str | None = None) -> list[Commit]:
        begun = self.history.tick()
        commits = [
            Commit(self.group, place, offset, begun, transaction=transaction)
            for place, offset in self.positions.items()
        ]
        self.history.commits.extend(commits)
        return commits

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.span = f"{self._name}.{next(self._spans)}"
        begun = self.history.tick()
        try:
            committed = consumer.committed(partitions, COMMITTED_SECONDS)
        except KafkaException as problem:
            # Out of a callback the library would raise something that is no exception: poll() does it.
            self._problem = problem
            return
        ended = self.history.tick()
        for each in committed:
            assert each.error is None, each.error
            place, known = (each.topic, each.partition), each.offset >= 0
            self.history.found.append(Found(self.group, place, each.offset if known else None, begun, ended))
            self.history.begins.append(Begin(self.span, place, max(each.offset, 0)))
            each.offset = each.offset if known else OFFSET_BEGINNING
        (consumer.incremental_assign if self._incremental else consumer.assign)(committed)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self.positions.pop((each.topic, each.partition), None)
