"""A reader on kafka-go walks over a compacted topic, of whose segments little or nothing is left."""

from __future__ import annotations

import confluent_kafka
import pytest

from forebay.client import Admin
from forebay.testing import Broker
from support.go import franz_go
from support.waiting import Patience

pytestmark = [pytest.mark.compat, pytest.mark.timeout(900)]

MESSAGES = 400
KEYS = 20
CLEANED_SOON = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "100"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0.01"}


def test_each_message_of_a_compacted_topic_comes_once(topic: str) -> None:
    if reason := franz_go.why_not():
        pytest.skip(reason)
    with Broker(process=True, settings=CLEANED_SOON) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic(topic, partitions=1, config=COMPACTED)
        # Of an idempotent producer, last batches stay without messages until it has sent more, as in Kafka.
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": False})
        for number in range(MESSAGES):
            producer.produce(topic, f"v{number}", key=str(number * number % KEYS))
            producer.flush()
        patience = Patience("the topic is compacted")
        while len(found := franz_go.read_by_kafka_go(servers, topic, MESSAGES - 1)) > MESSAGES // 4:
            patience.check(len(found))
        assert found == sorted(set(found)), "no message comes again"
