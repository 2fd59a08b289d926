"""Index files that are gone when a broker starts: removed by somebody, or left out of a backup.

Readers of committed messages must see what was committed, and nothing else; so must compaction, which deletes
the rest for good.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from support.brokers.broker_process import BrokerProcess, running_broker
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_consumer, create_topic
from support.waiting import Patience

PLAIN, KEYED = "plain", "keyed"
ROUNDS = 24
KEYS = 4
SMALL = {"segment.bytes": "1500", "index.interval.bytes": "200", "file.delete.delay.ms": "0"}
EAGER = ("log.cleaner.backoff.ms=20", "log.cleaner.min.cleanable.ratio=0")
EVEN = [f"committed-{number}".encode() for number in range(0, ROUNDS, 2)]
LATEST = {f"k{n // 2 % KEYS}".encode(): f"committed-{n}".encode() for n in range(0, ROUNDS, 2)}
ENDS = {"stopped": signal.SIGTERM, "killed": signal.SIGKILL}
LOST = {
    "index": ["*.index"],
    "timeindex": ["*.timeindex"],
    "txnindex": ["*.txnindex"],
    "txnindex-of-closed": ["0000000000000000000[0-9].txnindex"],
    "snapshot": ["*.snapshot"],
    "indexes": ["*index"],
    "everything-but-logs": ["*index", "*.snapshot", ".txn_indexed", "leader-epoch-checkpoint"],
}


def transactional(broker: BrokerProcess, name: str) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(DEADLINE_SECONDS)
    return producer


def write(broker: BrokerProcess, numbers: range) -> None:
    """Transactions that commit and abort in turn, and one that is aborted at the end of them all."""
    long, short = transactional(broker, "long"), transactional(broker, "short")
    long.begin_transaction()
    long.produce(PLAIN, b"aborted-first")
    assert long.flush(DEADLINE_SECONDS) == 0
    for number in numbers:
        commits = number % 2 == 0
        what = f"{'committed' if commits else 'aborted'}-{number}".encode()
        short.begin_transaction()
        short.produce(PLAIN, what.ljust(100, b"."))
        # The aborted value of a key is always later than the committed one.
        short.produce(KEYED, what.ljust(100, b"."), f"k{number // 2 % KEYS}".encode())
        assert short.flush(DEADLINE_SECONDS) == 0  # an abort would not send it
        (short.commit_transaction if commits else short.abort_transaction)(DEADLINE_SECONDS)
    long.produce(PLAIN, b"aborted-last")
    assert long.flush(DEADLINE_SECONDS) == 0
    long.abort_transaction(DEADLINE_SECONDS)


@pytest.fixture(scope="module", params=ENDS)
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that has ended."""
    data = tmp_path_factory.mktemp(request.param) / "data"
    with running_broker(data, "log.cleaner.enable=false") as broker:
        create_topic(broker.bootstrap, PLAIN, **SMALL)
        create_topic(broker.bootstrap, KEYED, **SMALL, **{"cleanup.policy": "compact"})
        write(broker, range(ROUNDS // 2))
        broker.restart()  # from here on, what was written is known to be synced
        write(broker, range(ROUNDS // 2, ROUNDS))
        for topic in (PLAIN, KEYED):
            patience = Patience("all transactions have their markers")
            while (found := [value for _, value in committed(broker, topic)]) != EVEN:
                patience.check(found)
        broker.end(ENDS[request.param])
    assert len(list(data.glob(f"{PLAIN}-0/*.log"))) > 3
    return data


@pytest.fixture
def start_without(ended: Path, tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts a broker on a copy of the directory that lacks some files."""
    data = tmp_path / "data"
    shutil.copytree(ended, data)
    brokers: list[BrokerProcess] = []

    def start(patterns: list[str], *settings: str) -> BrokerProcess:
        gone = [file for topic in (PLAIN, KEYED) for p in patterns for file in data.glob(f"{topic}-0/{p}")]
        assert gone, "nothing to lose"
        for file in gone:
            file.unlink()
        brokers.append(BrokerProcess(data, *settings))
        return brokers[0].start()

    yield start
    for broker in brokers:
        broker.close()


def committed(broker: BrokerProcess, topic: str) -> list[tuple[bytes, bytes]]:
    """Key and value of all that a reader of committed messages is shown."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = confluent_consumer(broker.bootstrap, **settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes, bytes]] = []
    try:
        while (message := consumer.poll(DEADLINE_SECONDS)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return found
            found.append((message.key() or b"", (message.value() or b"").rstrip(b".")))
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic} after {found}")


@pytest.mark.parametrize("lost", LOST)
def test_readers_are_shown_what_was_committed(start_without: Callable[..., BrokerProcess], lost: str) -> None:
    broker = start_without(LOST[lost], "log.cleaner.enable=false")
    assert [value for _, value in committed(broker, PLAIN)] == EVEN
    assert [value for _, value in committed(broker, KEYED)] == EVEN
    broker.kill()
    broker.start()
    assert [value for _, value in committed(broker, PLAIN)] == EVEN, "what was made anew lasts"


@pytest.mark.parametrize("lost", ["txnindex", "indexes", "everything-but-logs"])
def test_compaction_keeps_what_was_committed(start_without: Callable[..., BrokerProcess], lost: str) -> None:
    broker = start_without(LOST[lost], *EAGER)
    patience = Patience("the topic is compacted")
    while len(found := committed(broker, KEYED)) >= len(EVEN) - 1:
        patience.check(found)
    assert dict(committed(broker, KEYED)) == LATEST
    broker.restart()
    assert dict(committed(broker, KEYED)) == LATEST
