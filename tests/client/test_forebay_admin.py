"""The admin: topics, settings, groups and their offsets."""

from __future__ import annotations

import pytest

from forebay.client import Admin, AsyncAdmin, ClientError, Consumer, GroupInfo, Producer
from forebay.testing import Broker


@pytest.fixture
def admin(forebay_broker: Broker) -> Admin:
    return Admin(forebay_broker.bootstrap_servers)


def test_a_topic_from_creation_to_deletion(admin: Admin, forebay_topic: str) -> None:
    name = f"{forebay_topic}-own"
    admin.create_topic(name, partitions=2, config={"retention.ms": "5000"})
    assert admin.topics()[name] == 2
    admin.add_partitions(name, 3)
    assert admin.start_offsets(name) == admin.end_offsets(name) == {0: 0, 1: 0, 2: 0}
    admin.set_topic_config(name, {"retention.ms": None, "segment.bytes": "1048576"})
    config = admin.topic_config(name)
    assert (config["retention.ms"], config["segment.bytes"]) == ("1209600000", "1048576")
    admin.delete_topic(name)
    assert name not in admin.topics()


def test_what_exists_or_is_missing_can_be_fine(admin: Admin, forebay_topic: str) -> None:
    with pytest.raises(ClientError) as error:
        admin.create_topic(forebay_topic)
    assert error.value.name == "TOPIC_ALREADY_EXISTS"
    admin.create_topic(forebay_topic, exist_ok=True)
    with pytest.raises(ClientError) as error:
        admin.delete_topic("no-such-topic")
    assert error.value.name == "UNKNOWN_TOPIC_OR_PART"
    admin.delete_topic("no-such-topic", missing_ok=True)
    with pytest.raises(ClientError, match="no-such-topic"):
        admin.end_offsets("no-such-topic")
    with pytest.raises(ClientError):
        admin.delete_group("no-such-group")
    admin.delete_group("no-such-group", missing_ok=True)


def test_a_group_its_offsets_and_its_lag(admin: Admin, forebay_broker: Broker, forebay_topic: str) -> None:
    servers, group, home = forebay_broker.bootstrap_servers, forebay_topic, (forebay_topic, 0)
    with Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        for number in range(5):
            producer.send(forebay_topic, str(number))
    with Consumer(servers, forebay_topic, group=group, profile="latency") as consumer:
        next(consumer)
        consumer.commit()
        assert GroupInfo(group=group, state="Stable", type="Classic") in admin.groups()
    assert GroupInfo(group=group, state="Empty", type="Classic") in admin.groups()
    assert (admin.committed(group), admin.lag(group)) == ({home: 1}, {home: 4})
    admin.set_committed(group, {home: 3})
    assert admin.lag(group) == {home: 2}
    admin.delete_group(group)
    assert group not in {each.group for each in admin.groups()}


async def test_the_same_awaited(forebay_broker: Broker, forebay_topic: str) -> None:
    name, group = f"{forebay_topic}-own", forebay_topic
    async with AsyncAdmin(forebay_broker.bootstrap_servers) as admin:
        await admin.create_topic(name, partitions=1)
        await admin.add_partitions(name, 2)
        assert (await admin.topics())[name] == 2
        await admin.set_topic_config(name, {"retention.ms": "5000"})
        assert (await admin.topic_config(name))["retention.ms"] == "5000"
        await admin.set_committed(group, {(name, 1): 0})
        assert await admin.committed(group) == {(name, 1): 0}
        assert await admin.lag(group) == {(name, 1): 0}
        assert group in {each.group for each in await admin.groups()}
        await admin.delete_group(group)
        assert await admin.start_offsets(name) == await admin.end_offsets(name) == {0: 0, 1: 0}
        await admin.delete_topic(name)
        assert name not in await admin.topics()
