"""Ends several transactions at once: all of them in the same way, or none.

A decision is a record in the log, and the records of a step are one batch, which is in the log as a whole or
not at all. So many decisions are as atomic as one, if one coordinator has all transactions: the client
chooses transactional ids that hash to one partition. After the decision the transactions are independent:
none waits for the markers of another, and after a crash the next coordinator finds all of them decided.

A transaction that was ended in the same way before is no error. So a request can be repeated when its
response was lost, even if markers are not written yet; and if some transactions were ended one by one, one
request can end the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from forebay.core.transactions import decisions
from forebay.core.transactions.decisions import TransactionOrError
from forebay.core.transactions.state import Identity, Transaction
from forebay.errors import ErrorCode
from forebay.wire.messages.end_txn import FURTHER_MAX, EndTxnRequest, EndTxnResponse

RECORDS_BYTES_MAX = 8 << 20
"""The maximum size of the batch with the decisions; replicas fetch and keep it in one piece."""

_RECORD_BYTES = 96
"""The maximum size of a transaction's record, without its id and its partitions."""


def judge(
    find: Callable[[str], Transaction | None], request: EndTxnRequest, now_ms: int
) -> list[TransactionOrError]:
    """The outcome of each transaction that the request names, in its order.

    If any of them is an error other than NONE, none may be changed.
    """
    members = list(_members(request))
    if len(members) > 1 + FURTHER_MAX or len({name for name, _ in members}) < len(members):
        return [ErrorCode.INVALID_REQUEST] * len(members)
    outcomes = [_end(find(name), name, who, now_ms, request.committed) for name, who in members]
    if sum(map(_size_of, outcomes)) > RECORDS_BYTES_MAX:
        return [ErrorCode.MESSAGE_TOO_LARGE] * len(members)
    return outcomes


def _members(request: EndTxnRequest) -> Iterator[tuple[str, Identity]]:
    yield request.transactional_id, (request.producer_id, request.producer_epoch)
    for each in request.further:
        yield each.transactional_id, (each.producer_id, each.producer_epoch)


def _end(txn: Transaction | None, name: str, who: Identity, now_ms: int, commit: bool) -> TransactionOrError:
    if txn is None:
        return decisions.unknown(name)
    outcome = decisions.end(txn, who, now_ms, commit=commit)
    # The error for one that has been ended like this, and whose markers are on their way.
    return ErrorCode.NONE if outcome is ErrorCode.CONCURRENT_TRANSACTIONS else outcome


def _size_of(outcome: TransactionOrError) -> int:
    if isinstance(outcome, ErrorCode):
        return 0
    return _RECORD_BYTES + 2 * len(outcome.transactional_id) + decisions.size_of(outcome.partitions)


def reply(outcomes: list[TransactionOrError]) -> EndTxnResponse:
    """The response: which transactions are at fault, if any; then the others were not attempted."""
    errors = [each if isinstance(each, ErrorCode) else ErrorCode.NONE for each in outcomes]
    if any(errors):
        errors = [each or ErrorCode.OPERATION_NOT_ATTEMPTED for each in errors]
    return EndTxnResponse(error_code=errors[0], further_error_codes=[int(each) for each in errors[1:]])
