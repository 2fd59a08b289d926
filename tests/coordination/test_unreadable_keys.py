"""Values that cannot be read: what the image has in their place, and what is not written over."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from forebay.config import broker_config
from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata, load
from forebay.coordination.permanent_values import ensure_login_secret
from forebay.coordination.producer_id_counter import allocate_producer_ids
from forebay.coordination.store import Put, StoreError
from forebay.core.cluster.config_changes import Alteration, AlterOp, Resource, alter_configs
from forebay.core.cluster.image_changes import ConfigOwner, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.controller import departure, plan, prefer
from forebay.core.cluster.replicas.log_fate import Fate, decide_fate
from forebay.core.cluster.replicas.reassignment import reassign
from forebay.core.cluster.replicas.requested_elections import elect
from forebay.core.cluster.stored.image_text import encode_broker, encode_partition, encode_topic
from forebay.core.cluster.topics.topic_requests import NewTopic, create_topic
from forebay.errors import ErrorCode, KafkaError
from support.brokers.local_cluster import eventually
from support.brokers.memory_store import MemoryStore

KEYS = Keys("test")
TOPIC_ID = bytes(range(16))
RECORD = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=((1, 2), (2, 1)))
STATE = PartitionState(index=0, leader=2, leader_epoch=7, isr=(2, 1), replicas=(1, 2))
CONFIG = broker_config({"unclean.leader.election.enable": "true"})


async def stored(**values: bytes) -> MemoryStore:
    """A topic of two partitions on two brokers; `values` are written over theirs."""
    store = MemoryStore()
    puts = {
        KEYS.topic("t"): encode_topic(RECORD),
        KEYS.state(TOPIC_ID, 0): encode_partition(STATE),
        **{
            KEYS.broker(node): encode_broker(BrokerRegistration(id=node, host="h", port=9)) for node in (1, 2)
        },
    }
    await store.txn(puts=[Put(key=key, value=value) for key, value in puts.items()])
    for key, value in values.items():
        await put(store, key, value)
    return store


async def put(store: MemoryStore, key: str, value: bytes) -> None:
    await store.txn(puts=[Put(key=KEYS.root + key, value=value)])


@asynccontextmanager
async def followed(store: MemoryStore) -> AsyncIterator[Metadata]:
    metadata = await Metadata.open(store, KEYS)
    task = asyncio.create_task(metadata.follow())
    yield metadata
    task.cancel()


async def test_a_topic_that_cannot_be_read_is_not_absent() -> None:
    image = await load(await stored(**{"topics/t": b"{}"}), KEYS)
    assert "t" not in image.topics
    assert image.unreadable.topics == {"t"}
    assert image.may_have(TOPIC_ID)
    with pytest.raises(KafkaError) as refusal:
        create_topic(image, CONFIG, NewTopic(name="t", topic_id=bytes(16)))
    assert refusal.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_nothing_is_decided_for_a_partition_whose_state_cannot_be_read() -> None:
    image = await load(await stored(**{KEYS.state(TOPIC_ID, 0).removeprefix(KEYS.root): b"[]"}), KEYS)
    state, other = image.topics["t"].partitions
    assert (state.unreadable, state.leader, state.isr) == (True, NO_LEADER, ())
    assert other.leader == 2, "its own state is not there, which says that it is the first"
    alone = replace(image, brokers={1: image.brokers[1]})
    planned = [*plan(alone, CONFIG.controller), *prefer(image), *departure(image, 1, lost=True)]
    assert {change.state.index for change in planned} == {1}
    for wanted in (partial(elect, image, "t", 0, unclean=True), partial(reassign, image, "t", 0, [2])):
        with pytest.raises(KafkaError, match="cannot be read"):
            wanted()


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": []},
        {"replicas": [1, 1]},
        {"replicas": [1, 2**31]},
        {"replicas": [1, -2]},
        {"replicas": "12"},
        {"removing": [1, 2]},
        {"leader": 2**31},
        {"leader": -2},
        {"leader_epoch": 2**31},
        {"leader_epoch": -1},
        {"restored": 10**7},
    ],
    ids=str,
)
async def test_a_state_that_cannot_be_is_not_acted_on(wrong: dict[str, Any]) -> None:
    """Without replicas nobody has to keep a log; numbers that are too large break all answers to clients."""
    value = json.dumps(json.loads(encode_partition(STATE)) | wrong).encode()
    image = await load(await stored(**{KEYS.state(TOPIC_ID, 0).removeprefix(KEYS.root): value}), KEYS)
    assert image.topics["t"].partitions[0].unreadable
    for node in (1, 2):
        assert decide_fate(image, node, TOPIC_ID, 0, 7).fate is Fate.USED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topics/t", b'{"id":"AAECAwQFBgcICQoLDA0ODw","assignment":[[1,4294967296]]}'),
        ("topics/t", b'{"id":"AAECAwQFBgcICQoLDA0ODw","assignment":[[1,1]]}'),
        (
            "topics/t",
            b'{"id":"AAECAwQFBgcICQoLDA0ODw","assignment":[[1],[2]],"folds":[],"closed_ms":1,"copied":1}',
        ),
        (
            "topics/t",
            b'{"id":"AAECAwQFBgcICQoLDA0ODw","assignment":[[1],[2]],"folds":[[1,2,1,9999]],"closed_ms":1}',
        ),
        (
            "topics/t",
            b'{"id":"AAECAwQFBgcICQoLDA0ODw","assignment":[[1],[2]],"folds":[],"closed_ms":1,"former":[],'
            b'"gathering":[2],"draining":[]}',
        ),
        ("brokers/1", b'{"host":"h","port":65536,"rack":null}'),
        ("brokers/4294967296", b'{"host":"h","port":9,"rack":null}'),
        ("restored", b'{"generation":3000000,"id":"x"}'),
    ],
    ids=[
        "no such broker",
        "a broker twice",
        "a copy without a fold",
        "no such generation",
        "no such partition",
        "no such port",
        "no such node",
        "no such restore",
    ],
)
async def test_a_value_that_cannot_be_is_taken_for_unreadable(key: str, value: bytes) -> None:
    image = await load(await stored(**{key: value}), KEYS)
    assert key in image.unreadable


async def test_a_state_made_from_one_that_cannot_be_read_is_never_written() -> None:
    store = await stored(**{KEYS.state(TOPIC_ID, 0).removeprefix(KEYS.root): b"[]"})
    async with followed(store) as metadata:
        state = replace(metadata.image.topics["t"].partitions[0], leader=1)
        change = PartitionPut(topic_id=TOPIC_ID, state=state)
        assert await metadata.change_all([change]) == [change]
    item = await store.get(KEYS.state(TOPIC_ID, 0))
    assert item is not None
    assert item.value == b"[]"


async def test_a_topic_that_can_be_read_again_has_the_states_that_it_had() -> None:
    store = await stored()
    async with followed(store) as metadata:
        await put(store, "topics/t", b"x")
        await eventually(lambda: bool(metadata.image.unreadable))
        await put(store, "topics/t", encode_topic(RECORD))
        await eventually(lambda: not metadata.image.unreadable)
        state = metadata.image.topics["t"].partitions[0]
    assert (state.leader, state.leader_epoch) == (2, 7)


async def test_settings_that_cannot_be_read_delete_nothing() -> None:
    values = {"configs/topics/t": b'{"retention.ms":"1s"}', "configs/brokers/default": b"no"}
    image = await load(await stored(**values), KEYS)
    assert image.topic_config("t").overrides["retention.ms"] == "-1"
    assert image.broker_config("default").overrides["log.retention.ms"] == "-1"
    assert "unclean.leader.election.enable" in image.topic_config("t").overrides


async def test_settings_that_this_version_does_not_know_do_no_harm() -> None:
    image = await load(await stored(**{"configs/topics/t": b'{"of.a.newer.version":"x"}'}), KEYS)
    assert not image.unreadable
    assert image.topic_config("t").overrides == {"of.a.newer.version": "x"}


async def test_what_cannot_be_read_is_not_written_over() -> None:
    store = await stored(**{"configs/topics/t": b"no"})
    metadata = await Metadata.open(store, KEYS)
    change = Alteration(name="retention.ms", op=AlterOp.SET, value="5")
    with pytest.raises(KafkaError, match="configs/topics/t cannot be read"):
        await metadata.change(
            lambda image: alter_configs(image, CONFIG, Resource(type=2, name="t"), [change])
        )
    store = await stored(**{"topics/zz": b"no"})
    metadata = await Metadata.open(store, KEYS)
    record = replace(RECORD, name="zz", topic_id=bytes(16))
    with pytest.raises(KafkaError, match="topics/zz cannot be read"):
        await metadata.change(lambda _: [TopicPut(record=record)])


async def test_a_broker_whose_registration_cannot_be_read_is_neither_dead_nor_elected() -> None:
    image = await load(await stored(**{"brokers/2": b"{}"}), KEYS)
    assert set(image.brokers) == {1}
    assert plan(image, CONFIG.controller) == [], "it leads, and is in sync"
    led_by_1 = replace(STATE, leader=1, isr=(1, 2), index=0)
    topic = replace(image.topics["t"], partitions=(led_by_1, image.topics["t"].partitions[1]))
    dead = replace(image, brokers={}, topics={"t": topic})
    (change,) = [each for each in plan(dead, CONFIG.controller) if each.state.index == 0]
    assert change.state.leader == NO_LEADER, "it might be dead"
    assert change.state.isr == (2,), "and might be alive"


async def test_each_value_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store = await stored()

    def errors() -> list[str]:
        return [str(vars(each)["key"]) for each in caplog.records if each.levelno == logging.ERROR]

    async with followed(store) as metadata:
        for value in (b"a", b"b"):
            for key in ("acls/x", "acls/other"):
                await put(store, key, value)
                revision = (await store.range(KEYS.root))[1]
                await metadata.wait_for(revision)
    assert errors().count("acls/x") == 2


async def test_producer_ids_are_refused_while_their_number_cannot_be_read() -> None:
    store = await stored(**{"producer-ids": b"many"})
    with pytest.raises(StoreError, match="producer-ids"):
        await allocate_producer_ids(store, KEYS, 10)


async def test_a_secret_that_was_written_over_is_the_same_for_all() -> None:
    store = await stored(**{"login-secret": b"\xff"})
    assert await ensure_login_secret(store, KEYS, bytes(32)) == await ensure_login_secret(store, KEYS, b"x")


@pytest.mark.parametrize(
    "key",
    [
        KEYS.topic("t"),
        KEYS.config(ConfigOwner.TOPIC, "t"),
        KEYS.config(ConfigOwner.BROKER, "1"),
        KEYS.root + "brokers/x",
        KEYS.root + "state/x/0",
        KEYS.root + "users/%ff",
        KEYS.root + "controller",
    ],
)
@pytest.mark.parametrize("value", [b"garbage", b"\xff", b"[" * 100_000, b'{"id":1e999,"leader":1e999}'])
async def test_no_value_keeps_an_image_from_being_loaded(key: str, value: bytes) -> None:
    image = await load(await stored(**{key.removeprefix(KEYS.root): value}), KEYS)
    assert key.removeprefix(KEYS.root) in image.unreadable
