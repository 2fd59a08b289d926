"""Brokers and topics with tiered storage, whose intervals are short enough for tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.reading import read_manifest
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.tiers.layout import manifest_key
from forebay.wire.tiers.manifest import Manifest
from support.brokers.local_broker import LocalBroker
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    WireClient,
    append,
    batch,
    create,
    list_offsets,
    offset_at,
    read,
    values_of,
)

EARLIEST_LOCAL = -4
SECONDS = 60.0
TIERED = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "segment.bytes": "2000",
    "local.retention.bytes": "4000",
    "file.delete.delay.ms": "0",
}


def settings(store: Path | str) -> dict[str, str]:
    return {
        "forebay.remote.url": str(store),
        "remote.log.manager.task.interval.ms": "100",
        "remote.log.manager.task.retry.backoff.ms": "20",
        "remote.log.manager.task.retry.backoff.max.ms": "200",
        "log.retention.check.interval.ms": "50",
        "log.flush.interval.ms": "20",
        "forebay.remote.chunk.bytes": "4096",
    }


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def create_tiered(client: WireClient, topic: str, **configs: str) -> bytes:
    own = {name.replace("_", "."): value for name, value in configs.items()}
    return create(client, topic, 1, **{**TIERED, **own})


def fill(client: WireClient, topic: str, count: int, start: int = 0, size: int = 200) -> None:
    """Append messages, each in a batch of its own. The value of each begins with its number."""
    for number in range(start, start + count):
        answer = append(client, topic, batch(value(number, size), timestamp=1_000_000 + number))
        assert answer.error_code == 0


def value(number: int, size: int = 200) -> bytes:
    return b"%d " % number + b"v" * size


def delete_below(topic: str, offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsTopic(name=topic, partitions=[partition])
    return DeleteRecordsRequest(topics=[wanted], timeout_ms=60_000)


def manifest_of(store: Path, topic_id: bytes, partition: int = 0) -> Manifest | None:
    return read_manifest(LocalDirectory(str(store)), topic_id, partition)


def copied_to(store: Path, topic_id: bytes) -> int:
    found = manifest_of(store, topic_id)
    return -1 if found is None else found.next_offset


def values_from(client: WireClient, topic: str, offset: int) -> list[tuple[int, bytes | None]]:
    """All messages from an offset on, by fetches that wait for what is in the object store."""
    end, found = offset_at(client, topic, LATEST), list[tuple[int, bytes | None]]()
    while offset < end:
        data = read(client, topic, offset, max_wait_ms=5000)
        assert data.error_code == 0, data.error_code
        found += [item for item in values_of(data.records) if item[0] >= offset]
        offset = found[-1][0] + 1 if found else offset
    return found


def failure_of(broker: LocalBroker, topic: str) -> str:
    """What keeps its leader from copying, as `topic describe` says it."""
    remote = broker.on_loop(lambda node: node.partitions.get(topic, 0).remote)
    return "" if remote is None or remote.failure is None else remote.failure


def closed_to(broker: LocalBroker, topic: str) -> int:
    """Where the open segment begins."""
    return broker.on_loop(lambda node: node.partitions.get(topic, 0).log.segments()[-1].base_offset)


def copied(broker: LocalBroker, store: Path, topic: str) -> bytes:
    """A tiered topic whose first messages have left the local disk, and of which no copy is under way."""
    with WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
    return topic_id


def lose_manifest(store: Path, topic_id: bytes) -> None:
    (store / manifest_key(topic_id, 0)).unlink()


def is_readable(client: WireClient, topic: str) -> bool:
    """True once the leader knows what is in the object store."""
    (found,) = client.call(list_offsets(topic, EARLIEST), LIST_OFFSETS).topics
    return bool(found.partitions[0].error_code == 0)
