"""AddPartitionsToTxn: what a transaction writes to.

Brokers ask for many transactions at once, and those live on different shards: each is asked for its own, and
the answers are put together. A transaction that names a partition which does not exist is not begun at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.broker.connection import Reply
from forebay.broker.dispatch import Endpoint, RequestContext, answer_with
from forebay.core.txn import replies
from forebay.errors import ErrorCode
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest) -> Reply:
    # The requests of brokers are independent of each other: the next need not wait for this one's answer.
    reply = context.defer(pipelined=context.api_version >= replies.BATCHED_FROM)
    broker.background.spawn(answer_with(reply, _add(broker, context, request)), "answering a request")
    return reply


async def _add(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    refused: list[AddPartitionsToTxnResult] = []
    by_shard: dict[int, list[AddPartitionsToTxnTransaction]] = {}
    partition_for = broker.transactions.coordinator.partition_for
    for each in replies.transactions_of(request, version):
        if each.verify_only or all(broker.image.partition(*at) for at in replies.partitions_of(each.topics)):
            by_shard.setdefault(partition_for(each.transactional_id), []).append(each)
        else:
            refused.append(_refused(broker, each, version))
    if version < replies.BATCHED_FROM:
        if refused:
            return replies.add_partitions_to_txn(refused, version)
        return await _ask(broker, context, request.v3_and_below_transactional_id, request)
    asked = [
        _ask(broker, context, own[0].transactional_id, AddPartitionsToTxnRequest(transactions=own))
        for own in by_shard.values()
    ]
    answers = await asyncio.gather(*asked)
    granted = [result for answer in answers for result in answer.results_by_transaction]
    return replies.add_partitions_to_txn(refused + granted, version)


def _refused(
    broker: Broker, transaction: AddPartitionsToTxnTransaction, version: int
) -> AddPartitionsToTxnResult:
    def error_of(at: tuple[str, int]) -> ErrorCode:
        known = broker.image.partition(*at)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return replies.transaction_result(transaction, version, error_of)


async def _ask(
    broker: Broker, context: RequestContext, transactional_id: str, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    info = context.info
    response: AddPartitionsToTxnResponse = await broker.transactions.coordinator.ask(
        transactional_id,
        request,
        info,
        lambda machine, ticket: machine.add_partitions_to_txn(ticket, request, info, broker.now()),
    )
    return response


ENDPOINT = Endpoint(24, 0, 5, handle)
