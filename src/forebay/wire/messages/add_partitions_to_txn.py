"""AddPartitionsToTxn: make partitions part of a transaction.

`renew` and `forget` are Forebay's. They name transactional ids by prefix, and ask the coordinator of the
request's own id to restart the timeouts of their open transactions, or to forget unused ids. A broker that
does not know the tags skips them; the client can tell by the response, where `affected` is then missing. A
request with one of them and without topics adds nothing.
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    OWN_TAGS_FROM,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Request, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3):
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    renew: list[str] = array(string, "3", tag=OWN_TAGS_FROM)
    forget: list[str] = array(string, "3", tag=OWN_TAGS_FROM + 1)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(Response, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32()
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    affected: int = int32("3", default=-1, tag=OWN_TAGS_FROM)
    """For a request that adds nothing: the number of existing ids that it named; -1 if nothing was done."""
