"""AddPartitionsToTxn: what a transaction writes to.

Brokers ask for many transactions at once, and those live on different shards: each is asked for its own, and
the answers are put together.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.txn.replies import BATCHED_FROM
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.api_version < BATCHED_FROM:
        return await _ask(broker, context, request.v3_and_below_transactional_id, request)
    by_shard: dict[int, list[AddPartitionsToTxnTransaction]] = {}
    partition_for = broker.transactions.coordinator.partition_for
    for transaction in request.transactions:
        by_shard.setdefault(partition_for(transaction.transactional_id), []).append(transaction)
    answers = await asyncio.gather(
        *(
            _ask(
                broker,
                context,
                of_shard[0].transactional_id,
                AddPartitionsToTxnRequest(transactions=of_shard),
            )
            for of_shard in by_shard.values()
        )
    )
    return AddPartitionsToTxnResponse(
        results_by_transaction=[result for answer in answers for result in answer.results_by_transaction]
    )


async def _ask(
    broker: Broker, context: RequestContext, transactional_id: str, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    info = context.info
    response: AddPartitionsToTxnResponse = await broker.transactions.coordinator.ask(
        transactional_id,
        request,
        info,
        lambda machine, ticket: machine.add_partitions_to_txn(ticket, request, info, broker.now_ms()),
    )
    return response


ENDPOINT = Endpoint(24, 0, 5, handle)
