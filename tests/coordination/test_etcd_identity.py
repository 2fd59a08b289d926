"""An etcd of another cluster is not believed, in answers, in a watch, and for a lease."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forebay.config import broker_config
from forebay.coordination.etcd.store import EtcdStore
from forebay.coordination.store import MismatchReason, Put, StoreError, StoreMismatch
from forebay.coordination.store_identity import mismatch
from forebay.local.etcd import EtcdCluster
from support.brokers.local_cluster import eventually

KEY = "/forebay/test/identity"
OURS, OTHER = 0, 1


@pytest.fixture(scope="module")
def other_etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as etcd:
        yield etcd


@asynccontextmanager
async def store_on(*clusters: EtcdCluster) -> AsyncIterator[EtcdStore]:
    url = f"etcd://{','.join(cluster.endpoints for cluster in clusters)}/test"
    store = EtcdStore(broker_config({"forebay.cluster": url}).cluster)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(one_etcd: EtcdCluster, other_etcd: EtcdCluster) -> AsyncIterator[EtcdStore]:
    """Knows a value in its own etcd, and has just turned to the other one."""
    async with store_on(one_etcd, other_etcd) as made:
        made.gateway.current = OURS
        await made.txn(puts=[Put(key=KEY, value=b"ours")])
        made.gateway.current = OTHER
        yield made


async def test_what_another_etcd_answers_is_asked_again_elsewhere(store: EtcdStore) -> None:
    item = await store.get(KEY)
    assert item is not None
    assert item.value == b"ours"
    assert store.gateway.known.refused is None


async def test_what_was_written_to_another_etcd_is_written_to_ours(store: EtcdStore) -> None:
    assert (await store.txn(puts=[Put(key=KEY, value=b"again")])).ok
    item = await store.get(KEY)
    assert item is not None
    assert item.value == b"again"


async def test_a_watch_on_another_etcd_ends(store: EtcdStore) -> None:
    with pytest.raises(StoreError, match="put the right etcd back"):
        await anext(store.watch(KEY, 1))


async def test_nothing_is_believed_while_only_another_etcd_answers(
    one_etcd: EtcdCluster, other_etcd: EtcdCluster
) -> None:
    async with store_on(one_etcd) as ours, store_on(other_etcd) as store:
        await ours.get(KEY)
        store.gateway.known = ours.gateway.known
        for request in (store.get(KEY), store.range("/"), store.txn(puts=[Put(key=KEY, value=b"x")])):
            with pytest.raises(StoreMismatch) as caught:
                await request
            assert caught.value.reason is MismatchReason.ANOTHER_STORE
            assert other_etcd.endpoints in caught.value.message
        assert ours.gateway.known.refused is caught.value
        await ours.get(KEY)
        assert ours.gateway.known.refused is None


async def test_a_lease_does_not_count_until_the_right_etcd_has_answered(one_etcd: EtcdCluster) -> None:
    async with store_on(one_etcd) as store:
        lease = await store.lease(6)
        assert lease.valid()
        store.gateway.known.refused = mismatch(MismatchReason.WENT_BACK, "in this test")
        assert not lease.valid()
        await eventually(lease.valid)
        assert store.gateway.known.refused is None


async def test_an_etcd_that_comes_back_empty_has_gone_back(tmp_path: Path) -> None:
    with EtcdCluster(1, data_dir=tmp_path) as lone_etcd:
        await check_that_it_went_back(lone_etcd, tmp_path)


async def check_that_it_went_back(lone_etcd: EtcdCluster, tmp_path: Path) -> None:
    async with store_on(lone_etcd) as store:
        for number in range(3):
            await store.txn(puts=[Put(key=f"{KEY}/{number}", value=b"x")])
        watching = asyncio.ensure_future(anext(store.watch(KEY, 100)))
        lone_etcd.servers[0].kill()
        shutil.rmtree(tmp_path / "etcd0" / "data")
        lone_etcd.restart(0)
        with pytest.raises(StoreMismatch) as caught:
            await store.get(KEY)
        assert caught.value.reason is MismatchReason.WENT_BACK
        with pytest.raises(StoreError):
            async with asyncio.timeout(60):
                await watching
