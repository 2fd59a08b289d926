"""The transaction coordinator of one partition of __transaction_state, as a state machine.

It knows every transactional id that hashes to the partition, decides who may use it, and completes each
transaction. The decision is written to the log; then markers go to the transaction's partitions (the effect
WriteMarkers); when `markers_written` was called for each of them, the end is written to the log. The runtime
retries until every marker is written, and drops the markers of a discarded machine, whose successor sends
them again. A partition that no longer exists counts as marked.

EndTxn is answered once the decision is in the log. If a client begins its next transaction before the markers
are written, Kafka makes it retry. Here its request waits for the markers, a fifth of a second at most, and is
decided in the same step, and the same batch, as the end of the transaction before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from forebay.config import TransactionsConfig
from forebay.core.large_requests.answer_parts import present
from forebay.core.step import Now, RequestInfo, StateRecord, Step, Ticket
from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions import decisions, end_many, inspection, replies
from forebay.core.transactions.deadlines import Deadlines
from forebay.core.transactions.decisions import TransactionOrError
from forebay.core.transactions.draft import Asked, Draft, WriteMarkers
from forebay.core.transactions.id_prefixes import Leaving
from forebay.core.transactions.inspection import unknown_states
from forebay.core.transactions.state import (
    Identity,
    State,
    Transaction,
    is_exhausted,
    read_key,
    read_value,
)
from forebay.core.transactions.waiting import WaitingRoom
from forebay.errors import ErrorCode
from forebay.wire.fields import Request
from forebay.wire.messages import describe_transactions, list_transactions
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest

__all__ = ["TransactionShard", "WriteMarkers", "unknown_states"]

OFFSETS_TOPIC = "__consumer_offsets"


class TransactionShard:
    def __init__(self, config: TransactionsConfig, *, coordinator_epoch: int = 0) -> None:
        self._config = config
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}
        self._marking: dict[str, tuple[WriteMarkers, set[TopicPartition]]] = {}
        """The markers of each decided transaction, and the partitions that do not have theirs yet."""
        self._deadlines = Deadlines(config)
        self._leaving = Leaving()
        self._waiting = WaitingRoom()
        self._attempts: dict[type[Request], Callable[[Draft, Asked, bool], None]] = {
            InitProducerIdRequest: self._init,
            AddPartitionsToTxnRequest: self._add_partitions,
            AddOffsetsToTxnRequest: self._add_offsets,
        }

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        return MappingProxyType(self._transactions)

    # -- what the runtime calls around the operations ---------------------------------------------------

    def replay(self, record: StateRecord) -> None:
        """Apply a record: the only place where persistent state changes."""
        transactional_id = read_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = read_value(transactional_id, record.value)

    def loaded(self, now: Now) -> Step:
        """Called after the log was replayed: timers run again, and decided transactions are completed."""
        draft = Draft(self._transactions, now)
        for txn in list(self._transactions.values()):
            self._deadlines.schedule(txn, now)
            if txn.prepared:
                self._send_markers(draft, txn)
        return self._finish(draft)

    def tick(self, now: Now) -> Step:
        """Abort or forget one transaction whose time is up; while there are more, the deadline has passed."""
        draft = Draft(self._transactions, now)
        transactional_id = self._deadlines.take_due(now.ms)
        if transactional_id is not None:
            self._end_of_time(draft, transactional_id)
        for asked in self._waiting.give_up(now.ms):
            self._refuse(draft, asked, ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._finish(draft)

    # -- operations -------------------------------------------------------------------------------------

    def wants_producer_id(self, transactional_id: str) -> bool:
        """True if InitProducerId or EndTxn may need a fresh producer id for this transactional id."""
        txn = self._transactions.get(transactional_id)
        return txn is None or is_exhausted(txn.producer_epoch + 1)

    def init_producer_id(
        self,
        ticket: Ticket,
        request: InitProducerIdRequest,
        fresh_producer_id: int,
        info: RequestInfo,
        now: Now,
    ) -> Step:
        """`fresh_producer_id` may be -1 if `wants_producer_id` says no."""
        return self._operate(Asked(ticket, request, info.api_version, fresh_producer_id), now)

    def add_partitions_to_txn(
        self, ticket: Ticket, request: AddPartitionsToTxnRequest, info: RequestInfo, now: Now
    ) -> Step:
        """Add partitions. Every transactional id of a batched request must belong to this shard."""
        return self._operate(Asked(ticket, request, info.api_version, 0), now)

    def add_offsets_to_txn(
        self,
        ticket: Ticket,
        request: AddOffsetsToTxnRequest,
        offsets_partition: int,
        info: RequestInfo,
        now: Now,
    ) -> Step:
        return self._operate(Asked(ticket, request, info.api_version, offsets_partition), now)

    def end_txn(
        self, ticket: Ticket, request: EndTxnRequest, fresh_producer_id: int, info: RequestInfo, now: Now
    ) -> Step:
        """`fresh_producer_id` may be -1 if `wants_producer_id` says no.

        Further transactions that the request names must belong to this shard, too; see `end_many`.
        """
        if request.further:
            return self._end_together(ticket, request, now)
        draft = Draft(self._transactions, now)
        version = info.api_version
        outcome = self._decide_end(draft, request, fresh_producer_id, version)
        if isinstance(outcome, ErrorCode):
            txn = draft.get(request.transactional_id)
            identity = txn.current if txn and outcome is ErrorCode.NONE else replies.NOBODY
            draft.step.reply(ticket, replies.end_txn(outcome, version, identity))
        else:
            draft.step.reply(ticket, replies.end_txn(ErrorCode.NONE, version, outcome.current))
            self._prepare(draft, outcome)
        return self._finish(draft)

    def _end_together(self, ticket: Ticket, request: EndTxnRequest, now: Now) -> Step:
        draft = Draft(self._transactions, now)
        outcomes = end_many.judge(draft.get, request, now.wall_ms)
        draft.step.reply(ticket, end_many.reply(outcomes))
        if all(isinstance(each, Transaction) or each is ErrorCode.NONE for each in outcomes):
            for each in outcomes:
                if isinstance(each, Transaction):
                    self._prepare(draft, each)
        return self._finish(draft)

    def markers_written(self, markers: WriteMarkers, partitions: Iterable[TopicPartition], now: Now) -> Step:
        """Note that these partitions have the marker, or are gone.

        The effect itself identifies the transaction: two successive ones may have the same producer id and
        epoch, and a late report must not end the second before its own markers are written.
        """
        draft = Draft(self._transactions, now)
        sent, unmarked = self._marking.get(markers.transactional_id, (None, set()))
        txn = draft.get(markers.transactional_id)
        if sent is markers and txn is not None:
            unmarked.difference_update(partitions)
            if not unmarked:
                self._complete(draft, txn)
        return self._finish(draft)

    def still_marking(self, markers: WriteMarkers) -> bool:
        """True if these markers are still wanted: not if the machine that sent them has been discarded.

        A marker that is written late could end the next transaction, which may have the same epoch.
        """
        sent, _ = self._marking.get(markers.transactional_id, (None, ()))
        return sent is markers

    def verify_partition(
        self, transactional_id: str, identity: Identity, partition: TopicPartition
    ) -> ErrorCode:
        """Check that a producer which adds partitions explicitly has added this one: NONE, or the error."""
        return _verify(self._transactions.get(transactional_id), transactional_id, identity, partition)

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[describe_transactions.TransactionState]:
        return [inspection.described(self._transactions, each) for each in transactional_ids]

    def list_transactions(
        self,
        request: list_transactions.ListTransactionsRequest,
        now_ms: int,
        only: Sequence[str] | None = None,
    ) -> list[list_transactions.TransactionState]:
        """The transactions that match the filters at this wall time, or only some of them; `unknown_states`
        has invalid filters."""
        known = self._transactions
        return inspection.listed(known.values() if only is None else present(known, only), request, now_ms)

    @property
    def transactional_ids(self) -> list[str]:
        return list(self._transactions)

    # -- attempts: each may be made again when the markers of the transaction before are written -----------

    def _operate(self, asked: Asked, now: Now) -> Step:
        draft = Draft(self._transactions, now)
        self._attempts[type(asked.request)](draft, asked, True)
        return self._finish(draft)

    def _init(self, draft: Draft, asked: Asked, may_wait: bool) -> None:
        outcome = self._decide_init(draft, asked)
        if isinstance(outcome, Transaction) and outcome.prepared:
            # The open transaction of the previous producer is aborted first; then the request is handled
            # again.
            self._prepare(draft, outcome)
            outcome = self._decide_init(draft, asked)
        if isinstance(outcome, ErrorCode):
            if not self._waits(draft, asked, asked.request.transactional_id, outcome, may_wait):
                self._refuse(draft, asked, outcome)
            return
        self._put(draft, outcome)
        self._leaving.stays(outcome.transactional_id)
        response = replies.init_producer_id(ErrorCode.NONE, asked.version, outcome.current)
        draft.step.reply(asked.ticket, response)

    def _decide_init(self, draft: Draft, asked: Asked) -> TransactionOrError:
        request: InitProducerIdRequest = asked.request
        expected = (request.producer_id, request.producer_epoch)
        if not request.transactional_id or (-1 in expected and expected != (-1, -1)):
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.transaction_timeout_ms <= self._config.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        times = {"timeout_ms": request.transaction_timeout_ms, "now_ms": draft.now.wall_ms}
        txn = draft.get(request.transactional_id)
        if txn is None:
            return decisions.create(request.transactional_id, asked.number, **times)
        return decisions.initialise(txn, None if -1 in expected else expected, asked.number, **times)

    def _add_offsets(self, draft: Draft, asked: Asked, may_wait: bool) -> None:
        request: AddOffsetsToTxnRequest = asked.request
        transactional_id, identity = request.transactional_id, (request.producer_id, request.producer_epoch)
        error = self._add(draft, transactional_id, identity, frozenset({(OFFSETS_TOPIC, asked.number)}))
        if not self._waits(draft, asked, transactional_id, error, may_wait):
            draft.step.reply(asked.ticket, replies.add_offsets_to_txn(error, asked.version))

    def _add_partitions(self, draft: Draft, asked: Asked, may_wait: bool) -> None:
        version = asked.version
        if asked.request.renew or asked.request.forget:
            affected = self._deadlines.renew(asked.request.renew, self._transactions, draft.now.ms)
            affected += self._leaving.forget(asked.request.forget, draft, self._transactions)
            if not asked.request.v3_and_below_topics:
                draft.step.reply(asked.ticket, AddPartitionsToTxnResponse(affected=affected))
                return
        transactions = replies.transactions_of(asked.request, version)
        may_wait = may_wait and len(transactions) == 1
        results: list[AddPartitionsToTxnResult] = []
        for each in transactions:
            errors = self._add_each(draft, each)
            error = next(iter(errors.values()), ErrorCode.NONE)
            if self._waits(draft, asked, each.transactional_id, error, may_wait and not each.verify_only):
                return
            results.append(replies.transaction_result(each, version, errors.__getitem__))
        draft.step.reply(asked.ticket, replies.add_partitions_to_txn(results, version))

    def _add_each(self, draft: Draft, each: AddPartitionsToTxnTransaction) -> dict[TopicPartition, ErrorCode]:
        identity = (each.producer_id, each.producer_epoch)
        partitions = replies.partitions_of(each.topics)
        if not each.verify_only:
            return dict.fromkeys(partitions, self._add(draft, each.transactional_id, identity, partitions))
        txn = draft.get(each.transactional_id)
        return {at: _verify(txn, each.transactional_id, identity, at) for at in partitions}

    def _add(
        self,
        draft: Draft,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[TopicPartition],
    ) -> ErrorCode:
        txn = draft.get(transactional_id)
        if txn is None:
            return decisions.unknown(transactional_id)
        outcome = decisions.add(txn, identity, partitions, draft.now.wall_ms)
        if isinstance(outcome, ErrorCode):
            return outcome
        self._put(draft, outcome)
        return ErrorCode.NONE

    def _decide_end(
        self, draft: Draft, request: EndTxnRequest, fresh_producer_id: int, version: int
    ) -> TransactionOrError:
        txn = draft.get(request.transactional_id)
        if txn is None:
            return decisions.unknown(request.transactional_id)
        identity, commit = (request.producer_id, request.producer_epoch), request.committed
        if version < replies.EPOCH_BUMP_FROM:
            return decisions.end(txn, identity, draft.now.wall_ms, commit=commit)
        return decisions.end_with_bump(txn, identity, fresh_producer_id, draft.now.wall_ms, commit=commit)

    def _waits(
        self, draft: Draft, asked: Asked, transactional_id: str, error: ErrorCode, may_wait: bool
    ) -> bool:
        """True if a request is tried again once the markers are written, instead of being answered now."""
        if error is not ErrorCode.CONCURRENT_TRANSACTIONS or not may_wait:
            return False
        txn = draft.get(transactional_id)
        if txn is None or not txn.prepared:
            return False
        return self._waiting.admit(transactional_id, asked, draft.now.ms)

    def _refuse(self, draft: Draft, asked: Asked, error: ErrorCode) -> None:
        draft.step.reply(asked.ticket, replies.failure(asked.request, asked.version, error))

    # -- the way to the end -------------------------------------------------------------------------------

    def _prepare(self, draft: Draft, txn: Transaction) -> None:
        self._put(draft, txn)
        self._send_markers(draft, txn)

    def _send_markers(self, draft: Draft, txn: Transaction) -> None:
        if not txn.partitions:
            self._complete(draft, txn)
            return
        markers = WriteMarkers(
            transactional_id=txn.transactional_id,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            coordinator_epoch=self._coordinator_epoch,
            transaction_version=txn.client_version,
            commit=txn.state is State.PREPARE_COMMIT,
            partitions=tuple(sorted(txn.partitions)),
        )
        self._marking[txn.transactional_id] = markers, set(txn.partitions)
        draft.step.effects.append(markers)

    def _complete(self, draft: Draft, txn: Transaction) -> None:
        self._marking.pop(txn.transactional_id, None)
        self._put(draft, decisions.complete(txn, draft.now.wall_ms))
        for asked in self._waiting.leave(txn.transactional_id):
            self._attempts[type(asked.request)](draft, asked, False)
        self._leaving.ended(txn.transactional_id, draft)

    # -- time -----------------------------------------------------------------------------------------------

    def _put(self, draft: Draft, txn: Transaction) -> None:
        draft.put(txn)
        self._deadlines.schedule(txn, draft.now)

    def _end_of_time(self, draft: Draft, transactional_id: str) -> None:
        txn, now = draft.get(transactional_id), draft.now
        if txn is None or not self._deadlines.is_over(txn, now):
            return
        if txn.state is State.ONGOING:
            self._prepare(draft, decisions.fence(txn, now.wall_ms, owner_goes_on=True))
        else:
            draft.forget(transactional_id)

    def _finish(self, draft: Draft) -> Step:
        times = (self._deadlines.next_ms(), self._waiting.next_ms)
        draft.step.deadline_ms = min((at for at in times if at is not None), default=None)
        return draft.step


def _verify(
    txn: Transaction | None, transactional_id: str, identity: Identity, partition: TopicPartition
) -> ErrorCode:
    if txn is None:
        return decisions.unknown(transactional_id)
    return decisions.verify(txn, identity, partition)
