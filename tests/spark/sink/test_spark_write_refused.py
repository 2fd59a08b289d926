"""Rows that brokers would refuse become dead letters; a task alone, against a real broker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from forebay.errors import KafkaError
from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.producer import Limits, Producer, new_identity
from forebay.spark.sink.task import TaskSink
from forebay.spark.wire.connections import Cluster
from forebay.wire.batch import records, split
from forebay.wire.compression import Codec
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.wire_client import WireClient, create, read, read_all

COLUMNS = Columns(value=0, key=1, topic=2)
OPTIONS = {"kafka.retry.backoff.ms": "10", "kafka.default.api.timeout.ms": "1000"}


def write(bootstrap: str, rows: Sequence[tuple[bytes, bytes | None, str]], **options: Any) -> None:
    values, keys, topics = zip(*rows, strict=True)
    batch = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "topic": pa.array(topics, pa.string()),
        }
    )
    with Cluster(bootstrap, OPTIONS) as cluster:
        limits = options.pop("limits", Limits())
        chosen = WriteOptions(bootstrap="", limits=limits, **options)
        producer = Producer(cluster, new_identity(cluster), limits)
        TaskSink(producer, chosen, COLUMNS, task=0).write(iter([batch]))


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    with WireClient(bootstrap) as client:
        return [value for _, value in read_all(client, topic, 0)]


def reasons(bootstrap: str, topic: str) -> list[str]:
    with WireClient(bootstrap) as client:
        data = read(client, topic).records
    found = [record for start, header in split(data) for record in records(data[start : start + header.size])]
    return [(dict(record.headers)["__dlq.errors.message"] or b"").decode() for record in found]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_messages_that_are_too_large_are_dead_letters(
    broker: BrokerProcess, topic: str, codec: Codec
) -> None:
    """To the byte: a message that just fits is written, and one that compression makes fit, too."""
    letters = f"{topic}-letters"
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, max_message_bytes="2000")
        create(client, letters, 1)
    fixed = 61 + 2 + 1 + 1 + 1 + 1 + 2 + 1  # of the batch, and of the record around a value of 1900 bytes
    fits, large = os.urandom(2000 - fixed), os.urandom(2001 - fixed)
    zeros = bytes(3000)
    rows = [(value, None, topic) for value in (b"a", fits, large, zeros, *[b"b" * 300] * 20)]
    write(broker.bootstrap, rows, dead_letters=letters, limits=Limits(codec=codec))
    small = [b"a", *[b"b" * 300] * 20]
    found, refused = values(broker.bootstrap, topic), values(broker.bootstrap, letters)
    assert [value for value in found if value in small] == small
    if codec is Codec.NONE:
        assert refused == [large, zeros]
        assert reasons(broker.bootstrap, letters) == [
            f"the message takes 2001 bytes, and {topic} allows 2000",
            f"the message takes {3000 + fixed} bytes, and {topic} allows 2000",
        ]
    else:
        assert zeros in found and large in refused


def test_rows_for_topics_that_do_not_exist_are_dead_letters(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("auto.create.topics.enable=false")
    letters, missing = f"{topic}-letters", f"{topic}-missing"
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1)
        create(client, letters, 1)
    rows = [(b"1", None, topic), (b"2", None, missing), (b"3", None, "no topic!"), (b"4", None, missing)]
    write(broker.bootstrap, rows, dead_letters=letters)
    assert values(broker.bootstrap, topic) == [b"1"]
    assert values(broker.bootstrap, letters) == [b"2", b"3", b"4"]
    assert reasons(broker.bootstrap, letters) == [
        f"there is no topic {missing}",
        "there is no topic no topic!",
        f"there is no topic {missing}",
    ]
    with pytest.raises(KafkaError, match="create the topic first"):  # a mistake in an option is no bad row
        write(broker.bootstrap, rows, dead_letters=letters, topic=missing)


def test_rows_without_a_key_for_a_compacted_topic_are_dead_letters(broker: BrokerProcess, topic: str) -> None:
    letters = f"{topic}-letters"
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, cleanup_policy="compact")
        create(client, letters, 1)
    write(broker.bootstrap, [(b"1", b"k", topic), (b"2", None, topic)], dead_letters=letters)
    assert values(broker.bootstrap, topic) == [b"1"]
    assert reasons(broker.bootstrap, letters) == [f"the row has no key, and {topic} is compacted"]


def test_a_letter_that_is_too_large_for_its_own_topic_fails_the_write(
    broker: BrokerProcess, topic: str
) -> None:
    letters = f"{topic}-letters"
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, max_message_bytes="1000")
        create(client, letters, 1, max_message_bytes="1000")
    with pytest.raises(KafkaError, match=rf"cannot write to {letters}-0: .*raise max\.message\.bytes"):
        write(broker.bootstrap, [(b"x" * 2000, None, topic)], dead_letters=letters)
