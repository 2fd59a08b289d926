"""Guarded and large changes of the image, and an image that outlives the failures of its store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from forebay.config import broker_config
from forebay.coordination import metadata as metadata_module
from forebay.coordination.controller_election import campaign
from forebay.coordination.metadata import Fenced, Metadata, load
from forebay.coordination.registrations import register_broker
from forebay.coordination.store import (
    TXN_OPERATIONS_MAX,
    Compare,
    Delete,
    Event,
    KeyValue,
    Lease,
    Put,
    StoreError,
    TxnResult,
)
from forebay.coordination.translate import Writes
from forebay.core.cluster.image import NO_CONTROLLER, ClusterImage
from forebay.core.cluster.image_changes import Change, PartitionPut
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.topics.topic_requests import NewTopic, create_topic, delete_topic
from support.brokers.followed import KEYS, following
from support.brokers.local_cluster import eventually
from support.brokers.memory_store import MemoryStore

CONFIG = broker_config()


class FlakyStore(MemoryStore):
    """A store that can be away, and remembers its transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.away = asyncio.Event()
        self.failures = 0
        self.transactions: list[int] = []
        self.in_flight = 0
        self.in_flight_max = 0

    def leave(self) -> None:
        self.away.set()

    def come_back(self) -> None:
        self.away = asyncio.Event()

    def _check(self) -> None:
        if self.away.is_set():
            self.failures += 1
            raise StoreError("the store is away")

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        self._check()
        return await super().range(prefix)

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        self._check()
        self.transactions.append(max(len(compares), len(puts) + len(deletes)))
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight, self.in_flight_max)
        await asyncio.sleep(0)
        self.in_flight -= 1
        return await super().txn(compares, puts, deletes)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        self._check()
        away = asyncio.create_task(self.away.wait())
        events = super().watch(prefix, from_revision)
        try:
            while True:
                nearest = asyncio.ensure_future(anext(events))
                await asyncio.wait({nearest, away}, return_when=asyncio.FIRST_COMPLETED)
                if not nearest.done():
                    nearest.cancel()
                    self._check()
                yield await nearest
        finally:
            away.cancel()


async def join(store: MemoryStore, broker_id: int = 1) -> Lease:
    lease = await store.lease(5)
    await register_broker(store, KEYS, BrokerRegistration(id=broker_id, host="h", port=9), lease)
    return lease


async def create(metadata: Metadata, name: str, partitions: int = 2) -> ClusterImage:
    new = NewTopic(name=name, topic_id=name.encode().ljust(16, b"-"), num_partitions=partitions)
    return await metadata.change(lambda image: create_topic(image, CONFIG, new))


def raised(image: ClusterImage, *names: str) -> list[Change]:
    """A change of every partition of these topics."""
    return [
        PartitionPut(
            topic_id=image.topics[name].topic_id, state=replace(state, leader_epoch=state.leader_epoch + 1)
        )
        for name in names
        for state in image.topics[name].partitions
    ]


def epochs(image: ClusterImage, name: str) -> list[int]:
    return [state.leader_epoch for state in image.topics[name].partitions]


# -- guards -----------------------------------------------------------------------------------------------


async def test_the_image_knows_the_controller() -> None:
    store = MemoryStore()
    lease = await join(store)
    async with following(store) as metadata:
        assert metadata.image.controller == NO_CONTROLLER
        epoch = await campaign(store, KEYS.controller, b"1", lease)
        assert (await metadata.wait_for(epoch)).controller == 1
        assert (await load(store, KEYS)).controller == 1
        await lease.revoke()
        _, revision = await store.range("/")
        assert (await metadata.wait_for(revision)).controller == NO_CONTROLLER


async def test_a_guard_that_holds_lets_the_change_through() -> None:
    store = MemoryStore()
    epoch = await campaign(store, KEYS.controller, b"1", await join(store))
    async with following(store) as metadata:
        await create(metadata, "t")
        guard = Compare.created(KEYS.controller, epoch)
        image = await metadata.change(lambda image: raised(image, "t"), [guard])
        assert epochs(image, "t") == [1, 1]
        assert await metadata.change_all(raised(image, "t"), [guard]) == []
        assert epochs(metadata.image, "t") == [2, 2]


async def test_who_was_replaced_writes_nothing_more() -> None:
    store = MemoryStore()
    lease, other = await join(store), await join(store, 2)
    epoch = await campaign(store, KEYS.controller, b"1", lease)
    async with following(store) as metadata:
        await create(metadata, "t")
        await lease.revoke()
        await campaign(store, KEYS.controller, b"2", other)
        guard = Compare.created(KEYS.controller, epoch)
        with pytest.raises(Fenced, match="no longer at revision"):
            await metadata.change(lambda image: raised(image, "t"), [guard])
        changes = raised(metadata.image, "t")
        assert await metadata.change_all(changes, [guard]) == changes
        assert epochs(await load(store, KEYS), "t") == [0, 0]


async def test_a_plan_without_changes_asks_nobody() -> None:
    store = FlakyStore()
    async with following(store) as metadata:
        assert await metadata.change(lambda _: [], [Compare.absent("/x")]) is metadata.image
        assert await metadata.change_all([]) == []
        assert store.transactions == []


# -- large changes ----------------------------------------------------------------------------------------


async def test_large_changes_go_in_transactions_that_fit() -> None:
    store = FlakyStore()
    await join(store)
    async with following(store) as metadata:
        for name, partitions in (("a", 1000), ("b", 1), ("c", 1), ("d", 70)):
            await create(metadata, name, partitions)
        store.transactions.clear()
        guards = [Compare.absent(f"/nobody/{number}") for number in range(3)]
        changes = raised(metadata.image, "a", "b", "c", "d")
        assert await metadata.change_all(changes, guards) == []
        assert epochs(metadata.image, "a") == [1] * 1000
        assert epochs(metadata.image, "d") == [1] * 70
        assert max(store.transactions) <= TXN_OPERATIONS_MAX
        assert len(store.transactions) <= 10
        assert 1 < store.in_flight_max <= 8
        assert metadata.image == await load(store, KEYS)


async def test_the_first_transactions_of_a_large_change_are_under_way_before_the_last_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand partitions lose their leaders with one broker: nobody else may wait for all of it."""
    store, sent_when_made = FlakyStore(), list[int]()

    class CountedWrites(Writes):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            sent_when_made.append(len(store.transactions))

    await join(store)
    async with following(store) as metadata:
        await create(metadata, "t", 3000)
        store.transactions.clear()
        monkeypatch.setattr(metadata_module, "Writes", CountedWrites)
        assert await metadata.change_all(raised(metadata.image, "t")) == []
        assert epochs(metadata.image, "t") == [1] * 3000
    made = len(sent_when_made)
    assert made == len(store.transactions)
    assert sent_when_made[0] == 0
    assert sent_when_made[made // 2] > 0
    assert sent_when_made[-1] > made // 4


async def test_of_a_large_change_only_what_was_overtaken_fails() -> None:
    store = MemoryStore()
    await join(store)
    async with following(store) as one, following(store) as two:
        await create(one, "t", 200)
        await two.wait_for(one.image.revision)
        stale = raised(one.image, "t")
        await two.change(lambda image: [raised(image, "t")[150]])
        failed = await one.change_all(stale)
        assert stale[150] in failed
        assert 1 < len(failed) < 100
        lost = {change.state.index for change in failed if isinstance(change, PartitionPut)}
        await one.wait_for(two.image.revision)
        assert [index for index, epoch in enumerate(epochs(one.image, "t")) if not epoch] == sorted(
            lost - {150}
        )


async def test_a_state_made_from_an_old_one_is_never_written_over_a_newer_one() -> None:
    store = MemoryStore()
    await join(store)
    async with following(store) as metadata:
        await create(metadata, "t")
        stale = raised(metadata.image, "t")
        await metadata.change(lambda image: raised(image, "t"))
        assert await metadata.change_all(stale) == stale


async def test_a_topic_deleted_meanwhile_is_a_change_that_failed() -> None:
    store = MemoryStore()
    await join(store)
    async with following(store) as metadata:
        await create(metadata, "t")
        await create(metadata, "u")
        stale = raised(metadata.image, "t", "u")
        await metadata.change(lambda image: delete_topic(image, CONFIG, "t"))
        assert await metadata.change_all(stale) == stale[:2]
        assert epochs(metadata.image, "u") == [1, 1]


async def test_a_store_that_fails_in_the_middle_is_told() -> None:
    store = FlakyStore()
    await join(store)
    async with following(store) as metadata:
        await create(metadata, "t", 100)
        store.leave()
        with pytest.raises(StoreError, match="away"):
            await metadata.change_all(raised(metadata.image, "t"))


# -- a store that is away ---------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_module, "_BACKOFF_MIN_S", 0.005)
    monkeypatch.setattr(metadata_module, "_BACKOFF_MAX_S", 0.02)


@pytest.mark.usefixtures("impatient")
async def test_the_image_outlives_its_store(caplog: pytest.LogCaptureFixture) -> None:
    store = FlakyStore()
    await join(store)
    async with following(store) as metadata:
        before = await create(metadata, "t")
        with caplog.at_level(logging.INFO, logger=metadata_module.__name__):
            store.leave()
            await eventually(lambda: metadata.behind and store.failures > 5)
            assert metadata.image is before
            # What happens meanwhile is heard of afterwards, also by those who wait already.
            await MemoryStore.txn(store, puts=[Put(key=KEYS.controller, value=b"4")])
            waiting = asyncio.create_task(metadata.wait_for(before.revision + 1))
            store.come_back()
            assert (await waiting).controller == 4
            await eventually(lambda: not metadata.behind)
        words = [record.getMessage() for record in caplog.records]
        assert [word for word in words if "no longer" in word] == words[:1]
        assert [word for word in words if "again" in word] == words[1:2]
        # The watch holds again.
        assert "u" in (await create(metadata, "u")).topics


@pytest.mark.usefixtures("impatient")
async def test_a_store_that_is_behind_takes_nothing_back() -> None:
    store = FlakyStore()
    await join(store)
    async with following(store) as metadata:
        newer = replace(await create(metadata, "t"), revision=1_000_000)
        metadata.image = newer
        store.leave()
        await eventually(lambda: metadata.behind)
        store.come_back()
        await eventually(lambda: metadata.refused)
        assert metadata.behind
        assert metadata.image is newer


async def test_a_watch_that_keeps_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_module, "_WATCH_LATE_S", 0.02)
    store = MemoryStore()
    await join(store)
    async with following(store) as one:
        await create(one, "t")
        silent = await Metadata.open(store, KEYS)  # nobody follows for it
        await one.change(lambda image: raised(image, "t"))
        stale = raised(silent.image, "t")
        assert await silent.change_all(stale) == stale
        assert silent.image == one.image
        task = asyncio.create_task(silent.follow())
        # What comes late from the watch is not applied a second time.
        assert await silent.change_all(raised(silent.image, "t")) == []
        assert epochs(silent.image, "t") == [2, 2]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
