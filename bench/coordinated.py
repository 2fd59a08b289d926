"""What coordinators do, over and over: offsets are committed for a group, and transactions of one message."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.background import BackgroundLoad
from bench.cluster import LIBRARY

_PAUSE_S = 0.01
_PARTITION = 0


class Coordinated(BackgroundLoad):
    """Whoever asks for a wait gets the longest one since `begin_anew`."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "commits",
                "enable.auto.commit": False,
                **LIBRARY,
            }
        )
        consumer.assign([TopicPartition(topic, _PARTITION)])
        work = (("offsets_s_max", self._commit), ("transaction_s_max", self._transact))
        super().__init__(consumer, [partial(self._repeat, *each) for each in work])
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": "bench", **LIBRARY})
        self._producer.init_transactions()
        self._committed = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        self.offsets_s_max = self.transaction_s_max = 0.0
        self.errors = 0

    def _warm_up(self) -> None:
        self._commit()
        self._transact()

    def _repeat(self, longest: str, work: Callable[[], None]) -> None:
        while not self._stopping.wait(_PAUSE_S):
            began = time.perf_counter()
            try:
                work()
            except KafkaException:
                self.errors += 1
            setattr(self, longest, max(getattr(self, longest), time.perf_counter() - began))

    def _commit(self) -> None:
        self._committed += 1
        self._consumer.commit(
            offsets=[TopicPartition(self._topic, _PARTITION, self._committed)], asynchronous=False
        )

    def _transact(self) -> None:
        self._producer.begin_transaction()
        self._producer.produce(self._topic, b"x", partition=_PARTITION)
        self._producer.commit_transaction()
