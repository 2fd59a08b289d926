"""Members of groups that read, commit, leave and vanish at random, and readers of no group.

What a member begins with is asked of the broker each time partitions are assigned to it, so that the history
holds every committed offset that was seen, and from where on each assignment has to be read without a gap.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from forebay.errors import ErrorCode
from forebay.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from support.chaos.actors import (
    QUICK,
    Actor,
    GivenUp,
    Stage,
    abort,
    commit,
    delivered,
    new_transactional,
    within,
)
from support.chaos.history import Begin, Commit, Found, Given, History, Place, Read, Send, Transaction
from support.clients.wire_client import WireClient

COMMITTED_SECONDS = 5.0
LEAVE_SECONDS = 5.0
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
        # Without a cycle of references it is gone as soon as it is dropped, and heartbeats no more.
        self.consumer.subscribe(
            topics,
            on_assign=_weakly(self, Membership._assigned),
            on_revoke=_weakly(self, Membership._revoked),
            on_lost=_weakly(self, Membership._revoked),
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
            offsets = _places(self.positions)
            done = within(ANSWER_SECONDS, lambda: self.consumer.commit(offsets=offsets, asynchronous=False))
        except KafkaException:
            return  # nobody knows whether it was done
        stored = {(each.topic, each.partition) for each in done if each.error is None}
        for each in commits:
            if each.place in stored:
                self.history.acknowledge(each)

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

    def leave(self) -> None:
        """librdkafka may hang in close() when a rebalance comes just then."""
        with contextlib.suppress(GivenUp):
            within(LEAVE_SECONDS, self.consumer.close)

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


def drop(held: list[Any]) -> None:
    """A consumer that is dropped without close() sends no goodbye: it has crashed. librdkafka may hang in
    that as well."""
    with contextlib.suppress(GivenUp):
        within(LEAVE_SECONDS, held.clear)


def _weakly(membership: Membership, method: Callable[..., None]) -> Callable[..., None]:
    reference = weakref.ref(membership)

    def call(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = reference()
        if found is not None:
            method(found, consumer, partitions)

    return call


def _places(positions: dict[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]


class Member(Actor):
    """Joins, reads and commits; now and then leaves, or vanishes, and comes back as another member."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        *,
        group: str,
        topics: list[str],
        settled: threading.Event,
        **settings: Any,
    ) -> None:
        """Once `settled` is set it stays, so that everything can be read in the end."""
        super().__init__(name, stage)
        self.group, self.topics, self.settled, self.settings = group, topics, settled, settings

    def act(self) -> None:
        while not self.stopping.is_set():
            life = self.name, self.bootstrap, self.history
            held = [Membership(*life, self.group, self.topics, **self.settings)]
            if self._live(held[0]) and self.chance.random() < 0.6:
                held[0].leave()
            drop(held)

    def _live(self, membership: Membership) -> bool:
        """Whether nothing went wrong."""
        end = time.monotonic() + self.chance.uniform(1.0, 6.0)
        try:
            while not self.stopping.is_set() and (self.settled.is_set() or time.monotonic() < end):
                membership.take_turn(self.chance)
        except (KafkaException, GivenUp):
            return False
        return True


class Watcher(Actor):
    """Asks the coordinator of a KIP-848 group again and again which member has which partitions.

    What members read would not do: a librdkafka that looks for its coordinator tells the new one what it owns
    without the partitions for which its program has not been called back yet, and they are given away, by
    Kafka's rules too.
    """

    def __init__(self, name: str, stage: Stage, *, group: str) -> None:
        super().__init__(name, stage)
        self._group = group

    def act(self) -> None:
        servers = itertools.cycle(self.bootstrap.split(","))
        while not self.stopping.wait(0.1):
            with contextlib.suppress(OSError), WireClient(next(servers), timeout_s=1.0) as client:
                while not self.stopping.wait(0.05) and self._look(client):
                    pass

    def _look(self, client: WireClient) -> bool:
        """False when this broker does not coordinate the group."""
        answer = client.call(ConsumerGroupDescribeRequest(group_ids=[self._group]), 0)
        group: DescribedGroup = answer.groups[0]
        for member in group.members:
            for topic in member.assignment.topic_partitions:
                self.history.given |= {
                    Given(self._group, member.member_epoch, (topic.topic_name, number), member.member_id)
                    for number in topic.partitions
                }
        return group.error_code == ErrorCode.NONE


class Transformer(Actor):
    """Reads a topic and writes another exactly once: messages and offsets in one transaction."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        *,
        group: str,
        source: str,
        target: str,
    ) -> None:
        super().__init__(name, stage)
        self._group, self._source, self._target = group, source, target
        self._transactions = itertools.count()
        self._numbers = itertools.count()

    def act(self) -> None:
        while not self.stopping.is_set():
            producer = new_transactional(self.bootstrap, self.name)
            held = [Membership(self.name, self.bootstrap, self.history, self._group, [self._source])]
            try:
                while not self.stopping.is_set() and self._step(held[0], producer):
                    pass
                if self.chance.random() < 0.5:
                    held[0].leave()
            except KafkaException:
                pass
            drop(held)
            del producer

    def _step(self, membership: Membership, producer: Producer) -> bool:
        """False when this life is over: what was read, and not written, is read again by the next."""
        messages = self._take(membership)
        if not messages:
            return True
        name = f"{self.name}.{next(self._transactions)}"
        transaction = self.history.transactions[name] = Transaction()
        commits = membership.begin_commits(name)
        try:
            producer.begin_transaction()
            for message in messages:
                self._send(producer, message, name)
            metadata = membership.consumer.consumer_group_metadata()
            offsets = _places(membership.positions)
            within(ANSWER_SECONDS, lambda: producer.send_offsets_to_transaction(offsets, metadata, 10.0))
        except KafkaException:
            abort(producer, transaction)
            return False
        except GivenUp:
            transaction.outcome = "aborted"  # by the next producer of this transactional id
            return False
        if not commit(producer, transaction, self.history) or transaction.outcome != "committed":
            return False
        for each in commits:
            self.history.acknowledge(each)
        return self.chance.random() > 0.02

    def _take(self, membership: Membership) -> list[Any]:
        """Of the last assignment only: what came before it may have been given to another, or comes again."""
        messages: list[Any] = []
        span = membership.span
        for _ in range(self.chance.randrange(1, 40)):
            message = membership.poll(0.02)
            if membership.span != span:
                messages, span = [], membership.span
            if message is not None:
                messages.append(message)
        return messages if membership.positions else []

    def _send(self, producer: Producer, message: Any, name: str) -> None:
        value = b"%s|%s" % (message.value(), name.encode())
        place = (self._target, message.partition())
        self.history.sends[value] = Send(self.name, next(self._numbers), place, transaction=name)
        producer.produce(place[0], value, partition=place[1], on_delivery=delivered(self.history.acks))


class Reader(Actor):
    """Reads partitions from their beginning, in no group."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        *,
        places: Iterable[Place],
        committed_only: bool,
    ) -> None:
        super().__init__(name, stage)
        self._places, self._committed_only = list(places), committed_only

    def act(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if self._committed_only else "read_uncommitted",
                "fetch.wait.max.ms": 50,
                **QUICK,
            }
        )
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in self._places])
        self.history.begins += [Begin(self.name, place, 0) for place in self._places]
        while not self.stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
                now = self.history.tick()
                value = message.value() or b""
                self.history.reads.append(Read(self.name, place, offset, value, now, self._committed_only))
        consumer.close()
