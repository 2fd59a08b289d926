"""AddPartitionsToTxn: what a transaction writes to.

Brokers ask for many transactions at once, and those live on different shards: each is asked for its own, and
the answers are put together. A transaction that names a partition which does not exist is not begun at all.
One that was folded and is gone counts as existing: another takes what is sent for it.
"""

from __future__ import annotations

import asyncio

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.transactions import replies
from forebay.errors import ErrorCode
from forebay.wire.messages import add_partitions_to_txn as wire


def handle(
    transactions: Transactions,
    metadata: Metadata,
    background: Background,
    time: BrokerTime,
    context: RequestContext,
    request: wire.AddPartitionsToTxnRequest,
) -> Reply:
    # The requests of brokers are independent of each other: the next need not wait for this one's answer.
    reply = context.defer(pipelined=context.api_version >= replies.BATCHED_FROM)
    work = _add(transactions, metadata, time, context, request)
    return answer_later(background, reply, work, "answering a request")


async def _add(
    transactions: Transactions,
    metadata: Metadata,
    time: BrokerTime,
    context: RequestContext,
    request: wire.AddPartitionsToTxnRequest,
) -> wire.AddPartitionsToTxnResponse:
    version, image = context.api_version, metadata.image
    refused: list[wire.AddPartitionsToTxnResult] = []
    by_shard: dict[int, list[wire.AddPartitionsToTxnTransaction]] = {}
    coordinator = transactions.coordinator
    for each in replies.transactions_of(request, version):
        if each.verify_only or all(_takes(image, *at) for at in replies.partitions_of(each.topics)):
            by_shard.setdefault(coordinator.partition_for(each.transactional_id), []).append(each)
        else:
            refused.append(_refused(image, each, version))
    if version < replies.BATCHED_FROM:
        if refused:
            return replies.add_partitions_to_txn(refused, version)
        return await _ask(transactions, time, context, request.v3_and_below_transactional_id, request)
    asked = [
        _ask(
            transactions,
            time,
            context,
            own[0].transactional_id,
            wire.AddPartitionsToTxnRequest(transactions=own),
        )
        for own in by_shard.values()
    ]
    answers = await asyncio.gather(*asked)
    granted = [result for answer in answers for result in answer.results_by_transaction]
    return replies.add_partitions_to_txn(refused + granted, version)


def _takes(image: ClusterImage, topic: str, index: int) -> bool:
    """True if there is such a partition, and a producer may write to it."""
    return bool(image.path(topic, index)) and topic not in image.fills


def _refused(
    image: ClusterImage, transaction: wire.AddPartitionsToTxnTransaction, version: int
) -> wire.AddPartitionsToTxnResult:
    def error_of(at: tuple[str, int]) -> ErrorCode:
        if _takes(image, *at):
            return ErrorCode.OPERATION_NOT_ATTEMPTED
        is_view = at[0] in image.views or at[0] in image.fills
        return ErrorCode.POLICY_VIOLATION if is_view else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return replies.transaction_result(transaction, version, error_of)


async def _ask(
    transactions: Transactions,
    time: BrokerTime,
    context: RequestContext,
    transactional_id: str,
    request: wire.AddPartitionsToTxnRequest,
) -> wire.AddPartitionsToTxnResponse:
    info = context.info
    response: wire.AddPartitionsToTxnResponse = await transactions.coordinator.ask(
        transactional_id,
        request,
        info,
        lambda machine, ticket: machine.add_partitions_to_txn(ticket, request, info, time.now()),
    )
    return response
