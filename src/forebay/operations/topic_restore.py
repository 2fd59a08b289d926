"""Bringing a topic back from the object store alone, into any cluster. Blocking.

The messages that readers of committed messages saw are produced again, in the same partitions, in order, with
their timestamps and headers. A new topic gets them, so that nothing is mixed with what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from forebay.operations.client import REQUEST_SECONDS, Client, CommandError, settle
from forebay.operations.remote_store import committed_messages
from forebay.tiers.object_store import ObjectStore, ObjectStoreError
from forebay.tiers.reading import RemoteTopic, partition_count

_FLUSH_SECONDS = 60.0
_NOT_TAKEN_OVER = ("remote.storage.enable", "local.retention.ms", "local.retention.bytes")
_NOT_TAKEN_OVER_BUT_TIERS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
)
"""Timestamps of old messages may be beyond what is accepted of new ones."""


def restored_settings(topic: RemoteTopic, *, tiered: bool) -> dict[str, str]:
    """The settings of the new topic. `tiered`: it keeps old segments in an object store as well."""
    left_out = _NOT_TAKEN_OVER_BUT_TIERS if tiered else (*_NOT_TAKEN_OVER, *_NOT_TAKEN_OVER_BUT_TIERS)
    settings = {name: text for name, text in topic.settings.items() if name not in left_out}
    # Old messages would be deleted while they are brought back, or get new timestamps.
    return {
        **settings,
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
    }


def create_restored(
    client: Client, store: ObjectStore, topic: RemoteTopic, name: str, *, tiered: bool
) -> int:
    """Create the topic; returns its number of partitions."""
    from confluent_kafka.admin import NewTopic

    admin = client.admin()
    if name in client.metadata(admin).topics:
        raise CommandError(f"topic {name} exists: give the restored one another name with --as")
    count = partition_count(store, topic)
    new = NewTopic(
        name,
        num_partitions=count,
        replication_factor=-1,
        config=restored_settings(topic, tiered=tiered),
    )
    settle(admin.create_topics([new], request_timeout=REQUEST_SECONDS)[name])
    return count


def restore_messages(
    client: Client,
    store: ObjectStore,
    topic: RemoteTopic,
    name: str,
    partitions: Sequence[int],
    on_message: Callable[[int], None] = lambda _: None,
) -> int:
    """Produce every message again; returns how many. Raises CommandError if one was not acknowledged."""
    producer = client.producer({"acks": "all", "enable.idempotence": True, "linger.ms": 20})
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None and len(failures) < 3:
            failures.append(str(error))

    count = 0
    try:
        for partition in partitions:
            for record in committed_messages(store, topic, partition):
                _produce(producer, name, partition, record, delivered)
                count += 1
                on_message(count)
                if failures:
                    raise CommandError(f"the topic is restored in part only: {failures[0]}")
    except ObjectStoreError as error:
        raise CommandError(f"the topic is restored in part only: {error}") from error
    finally:
        left = producer.flush(_FLUSH_SECONDS)
    if failures or left:
        raise CommandError(f"the topic is restored in part only: {(failures or ['no answer'])[0]}")
    return count


def _produce(producer: Any, name: str, partition: int, record: Any, delivered: Callable[..., None]) -> None:
    while True:
        try:
            producer.produce(
                name,
                value=record.value,
                key=record.key,
                headers=[(header.key, header.value) for header in record.headers] or None,
                partition=partition,
                timestamp=max(record.timestamp, 0),
                on_delivery=delivered,
            )
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.1)
