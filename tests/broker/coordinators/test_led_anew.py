"""Waiting until partitions have other leaders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from forebay.broker.coordinators.led_anew import LedAnew
from forebay.config import broker_config
from forebay.coordination.metadata import Metadata
from forebay.coordination.registrations import register_broker
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.topics.topic_requests import NewTopic, create_topic
from support.brokers.followed import KEYS, following
from support.brokers.memory_store import MemoryStore

TOPIC = "t"
NEVER_S = 3600.0


@pytest.fixture
async def metadata() -> AsyncIterator[Metadata]:
    store = MemoryStore()
    registration = BrokerRegistration(id=1, host="h", port=9, rack=None)
    await register_broker(store, KEYS, registration, await store.lease(5))
    async with following(store) as running:
        new = NewTopic(name=TOPIC, topic_id=b"t" * 16, num_partitions=3)
        await running.change(lambda image: create_topic(image, broker_config(), new))
        yield running


@pytest.fixture
async def led_anew(metadata: Metadata) -> LedAnew:
    subject = LedAnew(metadata, asyncio.get_running_loop())
    metadata.listen(subject.follow)
    return subject


async def change(metadata: Metadata, index: int, *, elects: bool) -> None:
    """Write a partition's state again, with another leader or with the same."""
    state = metadata.image.topics[TOPIC].partitions[index]
    after = replace(state, leader_epoch=state.leader_epoch + elects)
    await metadata.change(lambda _: [PartitionPut(topic_id=b"t" * 16, state=after)])


async def test_who_waits_hears_of_an_election_of_its_own_partitions_only(
    metadata: Metadata, led_anew: LedAnew
) -> None:
    wait = led_anew.wait({(TOPIC, 0), (TOPIC, 1)}, metadata.image, NEVER_S)
    waiting = asyncio.create_task(wait)
    await asyncio.sleep(0)
    await change(metadata, 2, elects=True)
    await change(metadata, 1, elects=False)
    await asyncio.sleep(0)
    assert not waiting.done() and len(led_anew) == 2
    await change(metadata, 1, elects=True)
    assert await waiting
    assert not led_anew


async def test_an_election_that_was_before_counts(metadata: Metadata, led_anew: LedAnew) -> None:
    before = metadata.image
    await change(metadata, 0, elects=True)
    assert await led_anew.wait([(TOPIC, 0)], before, NEVER_S)


async def test_nobody_waits_for_longer_than_asked_and_nothing_is_left_of_it(
    metadata: Metadata, led_anew: LedAnew
) -> None:
    assert not await led_anew.wait([(TOPIC, 0)], metadata.image, 0.01)
    assert not led_anew
    await change(metadata, 0, elects=True)
