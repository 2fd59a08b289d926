"""A broker on which every metric of the catalog has something to show: TLS, groups, share groups, delays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import ErrorCode
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tls_files import TlsFiles
from support.clients.delaying import after, send
from support.clients.share_member import ShareMember, configure, join
from support.clients.wire_client import WireClient, append, batch, create, read
from support.scraping import Scraped, scrape

METRICS = {"forebay.metrics.listener": "127.0.0.1:0"}
_COORDINATOR, _COMMIT = 3, 8
_HOUR_S = 3600


def commit_request(group: str, topic: str, offset: int, partition: int = 0) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])]
    )


def commit(client: WireClient, group: str, topic: str, offset: int) -> None:
    client.call(FindCoordinatorRequest(key=group), _COORDINATOR)
    answer = client.call(commit_request(group, topic, offset), _COMMIT)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def scraped(local: LocalBroker) -> Scraped:
    address = local.node.exporter.address
    assert address is not None
    return scrape(address)


@contextlib.contextmanager
def busy_broker(directory: Path) -> Iterator[LocalBroker]:
    tls = TlsFiles(directory).broker_settings()
    settings = {**tls, "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **METRICS}
    settings["forebay.remote.url"] = str(directory / "objects")
    with local_broker(directory / "data", settings) as local, WireClient(local.bootstrap) as client:
        _use_topic(client)
        _use_queue(client)
        create(client, "archived", 1, **{"remote.storage.enable": "true"})
        create(client, "later", 1, **{"forebay.delay.enable": "true"})
        send(client, "later", b"x", after("1h"))
        yield local


def _use_topic(client: WireClient) -> None:
    create(client, "orders", 2)
    hour_ago_ms = int((time.time() - _HOUR_S) * 1000)
    append(client, "orders", batch(b"one", b"two", b"three", timestamp=hour_ago_ms))
    read(client, "orders")
    commit(client, "billing", "orders", 1)


def _use_queue(client: WireClient) -> None:
    topic_id = create(client, "jobs")
    configure(client, "workers")
    append(client, "jobs", batch(*(b"job" for _ in range(10))))
    worker = ShareMember(client, "workers", topic_id, member=join(client, "workers", "jobs"))
    worker.fetch(records=4, mode=1)
