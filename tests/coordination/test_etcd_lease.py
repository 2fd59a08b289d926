"""A lease on etcd: kept through the loss of servers, lost with the event loop, never claimed too long."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from forebay.config import broker_config
from forebay.coordination.etcd.lease import EtcdLease
from forebay.coordination.etcd.store import EtcdStore
from forebay.coordination.store import LeaseLost, Put, StoreError
from forebay.local.etcd import EtcdCluster
from support.brokers.shared_etcd import cluster_config, until_renewed

KEY = "/forebay/test/brokers/1"
SHORT_S = 2.0
LONGER_S = 6.0
RENEWALS = 5
"""A lease is renewed four times in its time to live."""


@pytest.fixture
async def store(one_etcd: EtcdCluster) -> AsyncIterator[EtcdStore]:
    opened = await EtcdStore.open(cluster_config(one_etcd))
    yield opened
    await opened.close()


async def holding(store: EtcdStore, ttl_s: float) -> EtcdLease:
    lease = await store.lease(ttl_s)
    await store.txn(puts=[Put(key=KEY, value=b"here", lease=lease.id)])
    return lease


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the clock tells nobody
            await asyncio.sleep(0.02)


async def test_a_lease_outlives_its_first_time_to_live(store: EtcdStore) -> None:
    lease = await holding(store, LONGER_S)
    for _ in range(RENEWALS):
        await until_renewed(lease)
    assert lease.valid()
    assert await store.get(KEY) is not None
    await lease.revoke()


async def test_a_lease_survives_the_death_of_etcds_leader(etcd: EtcdCluster) -> None:
    store = await EtcdStore.open(cluster_config(etcd))
    try:
        lease = await holding(store, 12.0)
        await asyncio.to_thread(etcd.servers[etcd.leader()].kill)
        deadline = time.monotonic() + 13.0
        while time.monotonic() < deadline:
            assert lease.valid()
            await asyncio.sleep(0.05)
        item = await store.get(KEY)
        assert item is not None
        assert item.lease == lease.id
    finally:
        await store.close()


async def test_a_loop_that_hangs_loses_its_lease_and_knows_it_at_once(store: EtcdStore) -> None:
    lease = await holding(store, SHORT_S)
    # The thread is free to run meanwhile: what it must not do is to renew for a loop that does nothing.
    time.sleep(SHORT_S * 1.8)  # noqa: ASYNC251 - hanging is the point
    assert not lease.valid()
    async with asyncio.timeout(60):
        await lease.lost.wait()
    while await store.get(KEY) is not None:  # noqa: ASYNC110 - etcd looks for what has ended now and then
        await asyncio.sleep(0.05)
    with pytest.raises(LeaseLost):
        await store.txn(puts=[Put(key=KEY, value=b"again", lease=lease.id)])


async def test_a_lease_is_not_valid_while_etcd_is_away_and_valid_again_when_it_is_back(
    lone_etcd: EtcdCluster,
) -> None:
    store = await EtcdStore.open(cluster_config(lone_etcd))
    try:
        lease = await holding(store, LONGER_S)
        await asyncio.to_thread(lone_etcd.servers[0].kill)
        await until(lambda: not lease.valid())
        assert not lease.lost.is_set()
        await asyncio.to_thread(lone_etcd.restart, 0)
        await until(lease.valid)
        assert await store.get(KEY) is not None
    finally:
        await store.close()


async def test_a_lease_that_others_ended_is_lost(store: EtcdStore, one_etcd: EtcdCluster) -> None:
    lease = await holding(store, SHORT_S)
    one_etcd.servers[0].ask("/v3/lease/revoke", {"ID": str(lease.id)})
    async with asyncio.timeout(60):
        await lease.lost.wait()
    assert not lease.valid()


async def test_giving_up_a_lease_that_etcd_has_forgotten_is_no_error(
    store: EtcdStore, one_etcd: EtcdCluster
) -> None:
    lease = await holding(store, 8.0)
    one_etcd.servers[0].ask("/v3/lease/revoke", {"ID": str(lease.id)})
    await lease.revoke()
    assert lease.lost.is_set()


async def test_closing_is_prompt_while_the_thread_looks_up_a_name(
    one_etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = one_etcd.url("test").replace("127.0.0.1", "localhost")
    store = await EtcdStore.open(broker_config({"forebay.cluster": url}).cluster)
    found, look_up = threading.Event(), socket.getaddrinfo

    def look_up_late(*arguments: Any, **options: Any) -> Any:
        found.wait(60)
        return look_up(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_late)
    try:
        await holding(store, 8.0)
        async with asyncio.timeout(30):
            await store.close()
    finally:
        found.set()


async def test_closing_is_prompt_while_etcd_stands_still(lone_etcd: EtcdCluster) -> None:
    store = await EtcdStore.open(cluster_config(lone_etcd))
    lease = await holding(store, 8.0)
    store.gateway.answer_timeout_s = store.gateway.request_timeout_s = 3600.0
    lone_etcd.servers[0].pause()
    reading = asyncio.create_task(store.get(KEY))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await store.close()
        with pytest.raises(StoreError):
            await reading
    assert lease.lost.is_set()
    lone_etcd.servers[0].resume()
