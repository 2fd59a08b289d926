"""connections.max.idle.ms and members that work on a message for longer than that."""

from __future__ import annotations

import pytest

from forebay.client import Queue
from forebay.errors import ErrorCode
from forebay.wire.messages.api_versions import ApiVersionsRequest
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.share_member import ShareMember, ack, configure, join, start_offset
from support.clients.wire_client import WireClient, append, batch, create

WAIT = 60.0
IDLE_MS = 1_000


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(f"connections.max.idle.ms={IDLE_MS}")


def wait_for_idle_ones_to_be_closed(broker: BrokerProcess) -> None:
    """Connections on which nothing has moved for as long as on one that is opened now are closed by then."""
    with WireClient(broker.bootstrap) as idle:
        idle.call(ApiVersionsRequest(), 3)
        assert idle.is_closed()


def test_a_member_that_holds_a_record_is_not_idle(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        topic_id = create(client, topic)
        configure(client, topic, share_record_lock_duration_ms="60000")
        append(client, topic, batch(b"job"))
        join(client, topic, topic)
        member = ShareMember(client, topic, topic_id)
        assert [each.deliveries for each in member.take()] == [1]
        wait_for_idle_ones_to_be_closed(broker)
        assert member.acknowledge(ack(0)) == ErrorCode.NONE
        assert client.is_closed(), "it is idle now, and holds nothing"


def test_a_worker_with_a_long_job_is_delivered_it_once(broker: BrokerProcess, topic: str) -> None:
    with (
        Queue(broker.bootstrap, topic, group=topic, lock_seconds=60) as queue,
        Queue(broker.bootstrap, topic, group=topic, lock_seconds=60) as other,
    ):
        queue.send_and_wait("job")
        with queue.receive(WAIT) as message:
            assert message.delivery_count == 1
            wait_for_idle_ones_to_be_closed(broker)
            assert list(other.messages(0.5)) == [], "it still has its lock"
    with WireClient(broker.bootstrap) as client:
        assert start_offset(client, topic) == 1
