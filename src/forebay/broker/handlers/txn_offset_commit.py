"""TxnOffsetCommit: offsets that count from the moment their transaction commits.

As for a Produce request, the transaction coordinator must know that the group's partition takes part before
the first offsets are written there; otherwise the transaction would never end on that partition. Older
clients add the partition first (AddOffsetsToTxn), and the coordinator only confirms it; since version 5 this
request adds it.
"""

from __future__ import annotations

import asyncio

from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.own_appends import check_own
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.transaction_verification import COME_BACK, Verdict, Verification
from forebay.core.groups.failures import failure
from forebay.core.groups.shard import GroupShard
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Response
from forebay.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

_ABORTABLE_FROM = 4
_IMPLICIT_ADD_FROM = 5


async def handle(
    groups: Groups,
    transactions: Transactions,
    loop: asyncio.AbstractEventLoop,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> Response:
    coordinator = groups.coordinator
    try:
        partition = coordinator.at(coordinator.partition_for(request.group_id)).partition
        if request.producer_id >= 0 and request.producer_epoch >= 0:
            await _verify(transactions, loop, context.api_version, request, partition)
    except KafkaError as error:
        return failure(request, context.info, error.code)
    # There is nothing to wait for between the verification and the append: no marker can come in between.
    response: Response = await groups.ask(context, request.group_id, request, GroupShard.txn_offset_commit)
    return response


async def _verify(
    transactions: Transactions,
    loop: asyncio.AbstractEventLoop,
    version: int,
    request: TxnOffsetCommitRequest,
    partition: Partition,
) -> None:
    """Make sure that the partition is in the producer's transaction; raises KafkaError if it is not."""
    producer_id, epoch = request.producer_id, request.producer_epoch
    check_own(partition, producer_id, epoch)
    if partition.producers.in_transaction(producer_id, epoch):
        return
    at, add = (partition.topic, partition.index), version >= _IMPLICIT_ADD_FROM
    question = Verification(request.transactional_id, producer_id, epoch, [at], add)
    try:
        guard = partition.verifications.begin(producer_id, epoch, 0)
    except KafkaError as error:
        raise _for_client(error, version) from None
    try:
        verdict = await _ask(transactions, loop, question)
        if at in verdict:
            raise _for_client(verdict[at], version)
        _check_guard(partition, producer_id, epoch, guard)
    finally:
        partition.verifications.release(producer_id, guard)


def _check_guard(partition: Partition, producer_id: int, epoch: int, guard: object) -> None:
    """Refuse the commit if the transaction ended after the coordinator confirmed it."""
    if partition.producers.in_transaction(producer_id, epoch):
        return
    if partition.verifications.verified_from(producer_id, guard) is None:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of producer {producer_id} ended before its offsets could be written",
        )


async def _ask(
    transactions: Transactions, loop: asyncio.AbstractEventLoop, question: Verification
) -> Verdict:
    answer: asyncio.Future[Verdict] = loop.create_future()
    transactions.verify(question, answer.set_result)
    return answer.result() if answer.done() else await answer


def _for_client(error: KafkaError, version: int) -> KafkaError:
    code = error.code
    if code in COME_BACK or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _IMPLICIT_ADD_FROM):
        # It is the group's coordinator that the client asked: it need not look for another.
        return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message)
    if code == ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, error.message)
    return error
