"""Guards of requests about records: Produce, ListOffsets, DeleteRecords and others that name partitions."""

from __future__ import annotations

from typing import Any

from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import CLUSTER_NAME, Operation
from forebay.core.cluster.image import ClusterImage
from forebay.core.guards.guard import (
    CLUSTER,
    TOPIC,
    TRANSACTION,
    Access,
    Guard,
    Narrowed,
    Refused,
    Verdict,
    adding,
    changed,
    each,
    explanation,
    split_by_code,
    whole,
    with_code,
)
from forebay.errors import ErrorCode
from forebay.wire.messages import delete_records as deletion
from forebay.wire.messages import describe_positions as positions
from forebay.wire.messages import describe_producers as producers
from forebay.wire.messages import list_offsets as listing
from forebay.wire.messages import offset_for_leader_epoch as epochs
from forebay.wire.messages import produce as producing
from forebay.wire.messages.alter_delays import AlterDelaysResponse
from forebay.wire.messages.describe_delays import DescribeDelaysResponse
from forebay.wire.messages.describe_fills import DescribeFillsResponse

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_WRITE = Operation.WRITE  # by this name it is found faster


def may_produce(
    authorizer: Authorizer,
    principal: str,
    host: str,
    image: ClusterImage,
    request: producing.ProduceRequest,
) -> bool:
    """The shortcut for most requests: every topic may be written."""
    transaction = request.transactional_id
    if transaction is not None and not authorizer.allows(principal, host, _WRITE, TRANSACTION, transaction):
        return False
    for topic in request.topic_data:
        name = topic.name or image.topic_names.get(topic.topic_id)
        if name is None or not authorizer.allows(principal, host, _WRITE, TOPIC, name):
            return False
    return True


def produce(access: Access, _version: int, request: producing.ProduceRequest) -> Verdict:
    transaction = request.transactional_id
    if transaction is not None and access.refuses(Operation.WRITE, TRANSACTION, transaction):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _unwritten(request, [_not_written(topic, code) for topic in request.topic_data])
    left, refused = split_by_code(
        request.topic_data, lambda topic: access.topic_error(Operation.WRITE, topic)
    )
    if not refused:
        return None
    answers = [_not_written(topic, code) for topic, code in refused]
    if not left:
        return _unwritten(request, answers)
    return Narrowed(changed(request, topic_data=left), adding("responses", answers))


def _unwritten(request: producing.ProduceRequest, answers: list[Any]) -> Refused:
    """A producer that wants no acknowledgement is told by closing its connection."""
    return Refused(None if request.acks == 0 else producing.ProduceResponse(responses=answers))


def _not_written(topic: producing.TopicProduceData, code: ErrorCode) -> producing.TopicProduceResponse:
    return producing.TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            producing.PartitionProduceResponse(
                index=data.index, error_code=code, error_message=explanation(code), base_offset=-1
            )
            for data in topic.partition_data
        ],
    )


def _refuses(operation: Operation, attribute: str) -> Any:
    return lambda access, topic: access.refuses(operation, TOPIC, getattr(topic, attribute))


list_offsets: Guard = each(
    items="topics",
    results="topics",
    response=listing.ListOffsetsResponse,
    is_refused=_refuses(Operation.DESCRIBE, "name"),
    denied=lambda topic: listing.ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            listing.ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=_DENIED)
            for wanted in topic.partitions
        ],
    ),
)

delete_records: Guard = each(
    items="topics",
    results="topics",
    response=deletion.DeleteRecordsResponse,
    is_refused=_refuses(Operation.DELETE, "name"),
    denied=lambda topic: deletion.DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            deletion.DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=-1, error_code=_DENIED
            )
            for wanted in topic.partitions
        ],
    ),
)

describe_producers: Guard = each(
    items="topics",
    results="topics",
    response=producers.DescribeProducersResponse,
    is_refused=_refuses(Operation.READ, "name"),
    denied=lambda topic: producers.TopicResponse(
        name=topic.name,
        partitions=[
            producers.PartitionResponse(
                partition_index=index, error_code=_DENIED, error_message=explanation(_DENIED)
            )
            for index in topic.partition_indexes
        ],
    ),
)


def _unless_broker(guard: Guard) -> Guard:
    """Others than brokers, which need ClusterAction, are checked by this guard."""

    def check(access: Access, version: int, request: Any) -> Verdict:
        if access.may(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            return None
        return guard(access, version, request)

    return check


offset_for_leader_epoch: Guard = _unless_broker(
    each(
        items="topics",
        results="topics",
        response=epochs.OffsetForLeaderEpochResponse,
        is_refused=_refuses(Operation.DESCRIBE, "topic"),
        denied=lambda topic: epochs.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                epochs.EpochEndOffset(partition=wanted.partition, error_code=_DENIED)
                for wanted in topic.partitions
            ],
        ),
    )
)
"""Followers need ClusterAction, consumers the permission to describe the topic."""

describe_positions: Guard = _unless_broker(
    each(
        items="topics",
        results="topics",
        response=positions.DescribePositionsResponse,
        is_refused=_refuses(Operation.DESCRIBE, "name"),
        denied=lambda topic: positions.DescribedTopic(
            name=topic.name,
            partitions=[
                positions.DescribedPartition(partition_index=wanted.partition_index, error_code=_DENIED)
                for wanted in topic.partitions
            ],
        ),
    )
)
"""Brokers ask for their groups, whatever the topics."""

describe_delays: Guard = whole(
    Operation.READ, TOPIC, lambda request: request.topic, with_code(DescribeDelaysResponse)
)
describe_fills: Guard = whole(
    Operation.DESCRIBE, TOPIC, lambda request: request.topic, with_code(DescribeFillsResponse)
)
alter_delays: Guard = whole(
    Operation.WRITE, TOPIC, lambda request: request.topic, with_code(AlterDelaysResponse)
)
