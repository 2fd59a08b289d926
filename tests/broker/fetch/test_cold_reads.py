"""Fetches whose bytes have to come from the device first: answered, whatever becomes of the log meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.broker.fetch.large_fetch import LargeFetch
from forebay.broker.handlers import fetch as handler
from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    FETCH,
    WireClient,
    append,
    batch,
    create,
    fetch,
    only_partition,
    values_of,
)

SECONDS = 120.0
DELETE_TOPICS = 6
TOPIC, OTHER = "t", "other"


class ColdFile(RealFile):
    __slots__ = ("_cold",)

    def __init__(self, disk: ColdDisk, path: str) -> None:
        super().__init__(disk, path)
        self._cold = disk

    def cached(self, position: int, length: int) -> bool:
        return super().cached(position, length) and not self._cold.cold

    def pread(self, length: int, position: int) -> bytes:
        if self._cold.cold and threading.get_ident() != self._cold.owner and TOPIC in self.path:
            self._cold.began.set()
            assert self._cold.released.wait(SECONDS)
        return super().pread(length, position)


class ColdDisk(RealDisk):
    """Nothing is in the page cache while it is `cold`, and the device answers when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.cold = False
        self.began = threading.Event()
        self.released = threading.Event()

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> ColdFile:
        if create:
            super().open(path, create=True)
        return ColdFile(self, path)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", make_disk=ColdDisk) as running:
        yield running


@pytest.fixture
def client(local: LocalBroker) -> Iterator[WireClient]:
    with WireClient(local.bootstrap) as connected:
        yield connected


def delete_topic(broker: LocalBroker, _: str) -> None:
    with WireClient(broker.bootstrap) as other:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000)
        assert other.call(request, DELETE_TOPICS).responses[0].error_code == ErrorCode.NONE


def truncate(broker: LocalBroker, topic: str) -> None:
    def act(running: Node) -> None:
        running.partitions.get(topic, 0).log.files.truncate_to(0)

    broker.on_loop(act)


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large fetch is answered in slices, also when its bytes had to be read first."""
    if request.param == "large":
        monkeypatch.setattr(handler, "AT_ONCE_MAX", 0)
        monkeypatch.setattr(LargeFetch, "_response", None)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("change", [delete_topic, truncate])
def test_a_log_that_goes_while_its_bytes_are_read_is_told(
    local: LocalBroker, client: WireClient, change: Callable[[LocalBroker, str], None]
) -> None:
    for topic in (OTHER, TOPIC):
        create(client, topic)
        append(client, topic, batch(b"first"))
    disk = local.node.disk
    assert isinstance(disk, ColdDisk)
    disk.cold = True
    both = FetchRequest(
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
            for topic in (OTHER, TOPIC)
        ],
    )
    client.post(both, FETCH)
    assert disk.began.wait(SECONDS)
    change(local, TOPIC)
    disk.released.set()
    good, bad = client.read().responses
    assert values_of(good.partitions[0].records) == [(0, b"first")]
    assert bad.partitions[0].error_code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
    disk.cold = False
    assert only_partition(client.call(fetch(OTHER), FETCH)).error_code == ErrorCode.NONE
