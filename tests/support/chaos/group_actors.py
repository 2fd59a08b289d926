"""Members of groups that read, commit, leave and vanish at random, and readers of no group."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterable
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
from support.chaos.child_process import ProcessActor, RemoteHistory
from support.chaos.history import Begin, Given, History, Place, Read, Send
from support.chaos.membership import ANSWER_SECONDS, Membership
from support.clients.wire_client import WireClient

LEAVE_CHANCE = 0.5


class Member(ProcessActor):
    """Joins, reads and commits; now and then leaves, or is killed, and comes back as another member."""

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
        super().__init__(name, stage, settled)
        self._group, self._topics, self._settings = group, topics, settings

    def about(self) -> dict[str, Any]:
        return {
            "bootstrap": self.bootstrap,
            "group": self._group,
            "topics": self._topics,
            "settings": self._settings,
        }

    @staticmethod
    def live(
        history: RemoteHistory,
        chance: random.Random,
        name: str,
        *,
        bootstrap: str,
        group: str,
        topics: list[str],
        settings: dict[str, Any],
    ) -> None:
        membership = Membership(name, bootstrap, history, group, topics, **settings)
        while history.may_go_on():
            membership.take_turn(chance)
        membership.consumer.close()


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


class Transformer(ProcessActor):
    """Reads a topic and writes another exactly once: messages and offsets in one transaction."""

    def __init__(
        self, name: str, stage: Stage, *, group: str, source: str, target: str, settled: threading.Event
    ) -> None:
        super().__init__(name, stage, settled)
        self._group, self._source, self._target = group, source, target

    def about(self) -> dict[str, Any]:
        return {
            "bootstrap": self.bootstrap,
            "transactional_id": self.name,
            "group": self._group,
            "source": self._source,
            "target": self._target,
        }

    @staticmethod
    def live(
        history: RemoteHistory,
        chance: random.Random,
        name: str,
        *,
        bootstrap: str,
        transactional_id: str,
        group: str,
        source: str,
        target: str,
    ) -> None:
        producer = new_transactional(bootstrap, transactional_id)
        membership = Membership(name, bootstrap, history, group, [source])
        transforming = _Transforming(name, history, chance, membership, producer, target)
        while history.may_go_on() and transforming.step():
            pass
        if chance.random() < LEAVE_CHANCE:
            membership.consumer.close()


class _Transforming:
    """One life of a transformer."""

    def __init__(
        self,
        name: str,
        history: History,
        chance: random.Random,
        membership: Membership,
        producer: Producer,
        target: str,
    ) -> None:
        self._name, self._history, self._chance = name, history, chance
        self._membership, self._producer, self._target = membership, producer, target
        self._transactions = itertools.count()
        self._numbers = itertools.count()

    def step(self) -> bool:
        """False when this life is over: what was read, and not written, is read again by the next."""
        membership, producer = self._membership, self._producer
        messages = self._take()
        if not messages:
            return True
        name = f"{self._name}.{next(self._transactions)}"
        transaction = self._history.begin_transaction(name)
        commits = membership.begin_commits(name)
        try:
            producer.begin_transaction()
            for message in messages:
                self._send(message, name)
            metadata = membership.consumer.consumer_group_metadata()
            offsets = membership.offsets()
            within(ANSWER_SECONDS, lambda: producer.send_offsets_to_transaction(offsets, metadata, 10.0))
        except KafkaException:
            abort(producer, transaction)
            return False
        except GivenUp:
            transaction.outcome = "aborted"  # by the next producer of this transactional id
            return False
        if not commit(producer, transaction, self._history) or transaction.outcome != "committed":
            return False
        for each in commits:
            self._history.acknowledge(each)
        return self._chance.random() > 0.02

    def _take(self) -> list[Any]:
        """Of the last assignment only: what came before it may have been given to another, or comes again."""
        membership = self._membership
        messages: list[Any] = []
        span = membership.span
        for _ in range(self._chance.randrange(1, 40)):
            message = membership.poll(0.02)
            if membership.span != span:
                messages, span = [], membership.span
            if message is not None:
                messages.append(message)
        return messages if membership.positions else []

    def _send(self, message: Any, name: str) -> None:
        value = b"%s|%s" % (message.value(), name.encode())
        place = (self._target, message.partition())
        self._history.sends[value] = Send(self._name, next(self._numbers), place, transaction=name)
        self._producer.produce(place[0], value, partition=place[1], on_delivery=delivered(self._history.acks))


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
