"""A request of every API that names the topic, group and transactional id of the tests of access."""

from __future__ import annotations

from typing import Any

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Field, Request, Struct
from forebay.wire.messages import (
    alter_client_quotas,
    alter_delays,
    api,
    consumer_group_heartbeat,
    share_group_heartbeat,
)
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from forebay.wire.messages.share_fetch import FetchPartition as SharePartition
from forebay.wire.messages.share_fetch import FetchTopic as ShareTopic
from forebay.wire.messages.share_fetch import ShareFetchRequest
from support.clients.wire_client import batch

TOPIC, GROUP, TRANSACTION = "matrix-t", "matrix-g", "matrix-x"
SHARE_GROUP = "matrix-s"
SHARE_APIS = (76, 77, 78, 79, 90, 91, 92)
MEMBER = "0c9d9f2e-16b9-4ba4-a3ea-2e0a4ce4c1a9"

_TEXTS = {
    "topic": TOPIC,
    "topic_name": TOPIC,
    "topic_names": TOPIC,
    "subscribed_topic_names": TOPIC,
    "name": TOPIC,
    "resource_name": TOPIC,
    "group_id": GROUP,
    "group_ids": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "key": GROUP,
    "coordinator_keys": GROUP,
    "transactional_id": TRANSACTION,
    "transactional_ids": TRANSACTION,
    "v3_and_below_transactional_id": TRANSACTION,
    "member_id": MEMBER,
    "principal": "User:nobody",
    "host": "*",
    "mover_id": "m",
}
_GROUPS = ("group_id", "group_ids")
_NUMBERS = {"resource_type": 2}
_EMPTY = {
    "configs",
    "replicas",
    "configuration_keys",
    "assignments",
    "renew",
    "forget",
    "further",
    "ids",
    "upsertions",
}
"""Lists that are better left empty."""


def sample(key: int, topic_id: bytes) -> Request:
    """With one item in each list; by name and by id, whichever the version has."""
    texts = _TEXTS | dict.fromkeys(_GROUPS, SHARE_GROUP) if key in SHARE_APIS else _TEXTS
    request: Request = _filled(api(key).request, topic_id, texts)
    return request


def _filled(struct: type[Struct], topic_id: bytes, texts: dict[str, str]) -> Any:
    values = {name: _value(name, field, topic_id, texts) for name, field in struct.FIELDS.items()}
    return struct(**{name: value for name, value in values.items() if value is not _LEFT_OUT})


_LEFT_OUT = object()


def _value(name: str, field: Field, topic_id: bytes, texts: dict[str, str]) -> Any:
    if field.tag is not None or name in _EMPTY:
        return [] if field.kind == "array" else _LEFT_OUT
    if field.kind == "array" and field.element is not None:
        item = _value(name, field.element, topic_id, texts)
        return [("x" if field.element.kind == "string" else 0) if item is _LEFT_OUT else item]
    if field.kind == "struct" and field.struct is not None and not field.nullable:
        return _filled(field.struct, topic_id, texts)
    if field.kind == "string":
        return texts.get(name, _LEFT_OUT)
    if field.kind == "uuid":
        return topic_id
    return _NUMBERS.get(name, _LEFT_OUT)


# -- where the meaning matters ---------------------------------------------------------------------------


def produce(topic_id: bytes, transactional_id: str | None = None, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch(b"value")))
    topic = TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=[data])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[topic])


def fetch(topic_id: bytes, replica_id: int = -1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=1),
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=[wanted])],
    )


def share_fetch(topic_id: bytes) -> ShareFetchRequest:
    topic = ShareTopic(topic_id=topic_id, partitions=[SharePartition(partition_index=0)])
    return ShareFetchRequest(
        group_id=SHARE_GROUP,
        member_id=MEMBER,
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
        topics=[topic],
    )


SPECIAL: dict[int, Any] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.METADATA: lambda _: MetadataRequest(
        topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
    ),
    ApiKey.OFFSET_FETCH: lambda topic_id: OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=GROUP,
                topics=[OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[0])],
            )
        ]
    ),
    ApiKey.JOIN_GROUP: lambda _: JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    ),
    ApiKey.CREATE_TOPICS: lambda _: CreateTopicsRequest(
        topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)], timeout_ms=10_000
    ),
    ApiKey.INIT_PRODUCER_ID: lambda _: InitProducerIdRequest(
        transactional_id=TRANSACTION, transaction_timeout_ms=10_000
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda _: AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    ),
    ApiKey.END_TXN: lambda _: EndTxnRequest(transactional_id=TRANSACTION, committed=True),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda _: alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.EntryData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="matrix")],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e12)],
            )
        ]
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda _: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=MEMBER,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda _: share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=SHARE_GROUP, member_id=MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC]
    ),
    ApiKey.SHARE_FETCH: share_fetch,
    ApiKey.ALTER_DELAYS: lambda _: alter_delays.AlterDelaysRequest(
        topic=TOPIC, partition=0, action=0, ids=[7]
    ),
}


def request_of(key: int, topic_id: bytes) -> Request:
    made: Request = SPECIAL[key](topic_id) if key in SPECIAL else sample(key, topic_id)
    return made
