"""Guards of transactions."""

from __future__ import annotations

from typing import Any

from forebay.core.acls.bindings import CLUSTER_NAME, Operation
from forebay.core.guards.guard import (
    CLUSTER,
    GROUP,
    TOPIC,
    TRANSACTION,
    Access,
    Narrowed,
    Refused,
    Verdict,
    adding,
    changed,
    split,
)
from forebay.core.transactions.inspection import unknown_states
from forebay.errors import ErrorCode
from forebay.wire.messages import add_partitions_to_txn as adding_wire
from forebay.wire.messages import describe_transactions as describing
from forebay.wire.messages import txn_offset_commit as committing
from forebay.wire.messages import write_txn_markers as markers
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from forebay.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from forebay.wire.messages.list_transactions import ListTransactionsResponse

_NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_NO_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_BATCHED_FROM = 4


def init_producer_id(access: Access, _version: int, request: InitProducerIdRequest) -> Verdict:
    if request.transactional_id is not None:
        if access.refuses(Operation.WRITE, TRANSACTION, request.transactional_id):
            return Refused(InitProducerIdResponse(error_code=_NO_TRANSACTION, producer_epoch=-1))
        return None
    if access.may_some(Operation.WRITE, TOPIC):
        return None
    if access.refuses_cluster(Operation.IDEMPOTENT_WRITE):
        return Refused(InitProducerIdResponse(error_code=_NO_CLUSTER, producer_epoch=-1))
    return None


def add_partitions_to_txn(
    access: Access, version: int, request: adding_wire.AddPartitionsToTxnRequest
) -> Verdict:
    if version >= _BATCHED_FROM:  # brokers ask for many transactions at once
        if access.refuses_cluster(Operation.CLUSTER_ACTION):
            return Refused(adding_wire.AddPartitionsToTxnResponse(error_code=_NO_CLUSTER))
        return None
    topics = request.v3_and_below_topics
    families = (*request.renew, *request.forget)  # all ids with this prefix
    if access.refuses(Operation.WRITE, TRANSACTION, request.v3_and_below_transactional_id) or any(
        access.refuses_prefix(Operation.WRITE, TRANSACTION, prefix) for prefix in families
    ):
        return _not_added({topic.name: _NO_TRANSACTION for topic in topics}, topics)
    refused = {topic.name for topic in topics if access.refuses(Operation.WRITE, TOPIC, topic.name)}
    if not refused:
        return None
    # If anything is denied, nothing is added.
    codes = {
        topic.name: _NO_TOPIC if topic.name in refused else ErrorCode.OPERATION_NOT_ATTEMPTED
        for topic in topics
    }
    return _not_added(codes, topics)


def _not_added(codes: dict[str, ErrorCode], topics: list[adding_wire.AddPartitionsToTxnTopic]) -> Refused:
    results = [
        adding_wire.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                adding_wire.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[topic.name]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
    return Refused(adding_wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


def add_offsets_to_txn(access: Access, _version: int, request: AddOffsetsToTxnRequest) -> Verdict:
    if access.refuses(Operation.WRITE, TRANSACTION, request.transactional_id):
        return Refused(AddOffsetsToTxnResponse(error_code=_NO_TRANSACTION))
    if access.refuses(Operation.READ, GROUP, request.group_id):
        return Refused(AddOffsetsToTxnResponse(error_code=_NO_GROUP))
    return None


def end_txn(access: Access, _version: int, request: EndTxnRequest) -> Verdict:
    ids = [request.transactional_id, *(each.transactional_id for each in request.further)]
    if any(access.refuses(Operation.WRITE, TRANSACTION, each) for each in ids):
        return Refused(EndTxnResponse(error_code=_NO_TRANSACTION))
    return None


def txn_offset_commit(access: Access, _version: int, request: committing.TxnOffsetCommitRequest) -> Verdict:
    response = committing.TxnOffsetCommitResponse
    if access.refuses(Operation.WRITE, TRANSACTION, request.transactional_id):
        return Refused(response(topics=[_not_committed(topic, _NO_TRANSACTION) for topic in request.topics]))
    if access.refuses(Operation.READ, GROUP, request.group_id):
        return Refused(response(topics=[_not_committed(topic, _NO_GROUP) for topic in request.topics]))
    left, refused = split(request.topics, lambda topic: access.refuses(Operation.READ, TOPIC, topic.name))
    if not refused:
        return None
    answers = [_not_committed(topic, _NO_TOPIC) for topic in refused]
    if not left:
        return Refused(response(topics=answers))
    return Narrowed(changed(request, topics=left), adding("topics", answers))


def _not_committed(
    topic: committing.TxnOffsetCommitRequestTopic, code: ErrorCode
) -> committing.TxnOffsetCommitResponseTopic:
    return committing.TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            committing.TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def write_txn_markers(access: Access, _version: int, request: markers.WriteTxnMarkersRequest) -> Verdict:
    """Brokers write markers; an administrator may, to end a hanging transaction."""
    if access.may(Operation.ALTER, CLUSTER, CLUSTER_NAME) or not access.refuses_cluster(
        Operation.CLUSTER_ACTION
    ):
        return None
    return Refused(markers.WriteTxnMarkersResponse(markers=[_not_marked(each) for each in request.markers]))


def _not_marked(marker: markers.WritableTxnMarker) -> markers.WritableTxnMarkerResult:
    return markers.WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            markers.WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    markers.WritableTxnMarkerPartitionResult(partition_index=index, error_code=_NO_CLUSTER)
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def describe_transactions(
    access: Access, _version: int, request: describing.DescribeTransactionsRequest
) -> Verdict:
    left, refused = split(
        request.transactional_ids, lambda name: access.refuses(Operation.DESCRIBE, TRANSACTION, name)
    )
    answers = [
        describing.TransactionState(
            transactional_id=name, error_code=_NO_TRANSACTION, transaction_state="", producer_id=-1
        )
        for name in refused
    ]
    if not left:
        return Refused(describing.DescribeTransactionsResponse(transaction_states=answers))

    def complete(response: Any) -> Any:
        for state in response.transaction_states:
            state.topics = [
                each for each in state.topics if access.may(Operation.DESCRIBE, TOPIC, each.topic)
            ]
        return changed(response, transaction_states=[*response.transaction_states, *answers])

    return Narrowed(changed(request, transactional_ids=left), complete)


def list_transactions(access: Access, _version: int, request: Any) -> Verdict:
    """Never an error: a client sees the transactions that it may describe."""
    if not access.may_describe_some(TRANSACTION):
        return Refused(ListTransactionsResponse(unknown_state_filters=unknown_states(request)))

    def complete(response: Any) -> Any:
        shown = [
            state
            for state in response.transaction_states
            if access.may(Operation.DESCRIBE, TRANSACTION, state.transactional_id)
        ]
        return changed(response, transaction_states=shown)

    return Narrowed(request, complete)
