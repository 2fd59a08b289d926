"""What a broker keeps in the store, to recognise it by."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from forebay.broker.cluster.store_memory import StoreMemory
from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.keys import Keys
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.registration import BrokerRegistration
from forebay.storage.datadir import DataDir
from forebay.storage.real_disk import RealDisk
from support.brokers.local_cluster import eventually
from support.brokers.memory_store import MemoryStore

KEYS = Keys("test")
NODE = 1


def joined(epoch: int) -> ClusterImage:
    """The image after this broker has joined at this revision."""
    registration = BrokerRegistration(id=NODE, host="here", port=9092, epoch=epoch)
    return replace(ClusterImage(cluster_id="c", brokers={NODE: registration}), revision=epoch)


async def test_a_broker_that_joins_again_writes_its_evidence_at_once(tmp_path: Path) -> None:
    """Its registration goes with its lease, also in a backup that is put back later."""
    store, data = MemoryStore(), DataDir.open(RealDisk(), str(tmp_path))
    data.claim("c", NODE)
    memory = StoreMemory(data, store, KEYS, NODE, entropy=os.urandom, now_ms=lambda: 0)
    workers = WorkerThreads(asyncio.get_running_loop(), ThreadPoolExecutor(1))

    def evidence() -> list[bytes]:
        return [item.value for item in store.keyspace.range(KEYS.evidence(NODE))[0]]

    before = joined(5)
    memory.follow(ClusterImage(cluster_id="c"), before)
    await memory.renew(workers)
    first = evidence()
    keeping = asyncio.create_task(memory.keep(workers))
    memory.follow(before, joined(9))

    await eventually(lambda: evidence() != first)
    keeping.cancel()
    workers.close()
    data.close()
