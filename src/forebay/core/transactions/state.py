"""The state of one transactional id: an immutable value, its states, and its record in the log.

    Empty --ADD--> Ongoing --COMMIT--> PrepareCommit --MARKED--> CompleteCommit --ADD--> Ongoing ...
                      |-----ABORT, FENCE--> PrepareAbort --MARKED--> CompleteAbort --ADD--> Ongoing ...

The transaction is decided when a Prepare state is in the log, and nothing can change its outcome afterwards:
next come the markers, one for every partition of the transaction, which are retried until each is written. A
producer is known by its id and its epoch; a producer with an older epoch than the one stored here is a
zombie.

Dead and PrepareEpochFence exist only because Kafka has names for them: a deleted id is a tombstone, and a
fence goes to PrepareAbort at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum

from forebay.core.step import StateRecord
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ProtocolError
from forebay.lazy import dataclass
from forebay.wire.batch import NO_PRODUCER_ID
from forebay.wire.state.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from forebay.wire.state.versioned import pack, unpack, version_of

Identity = tuple[int, int]
"""(producer id, epoch): the identity of a producer."""

NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
"""Only a fence ends at this epoch; no client is given it, so that every client can be fenced."""

_KEY_VERSION = 0
_VALUE_VERSION = 1


class State(IntEnum):
    """The numbers are those in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that clients see and filter by."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Event(StrEnum):
    INIT = "a producer takes the transactional id"
    ADD = "partitions are added"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts"
    ABORT_NOTHING = "the producer aborts what never reached the coordinator"
    FENCE = "another producer comes, or time is up"
    MARKED = "every partition has its marker"
    EXPIRE = "the transactional id is unused for long"


_AT_REST = {
    Event.INIT: State.EMPTY,
    Event.ADD: State.ONGOING,
    Event.ABORT_NOTHING: State.PREPARE_ABORT,
    Event.EXPIRE: State.DEAD,
}

TRANSITIONS: dict[State, dict[Event, State]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: {
        Event.ADD: State.ONGOING,
        Event.COMMIT: State.PREPARE_COMMIT,
        Event.ABORT: State.PREPARE_ABORT,
        Event.FENCE: State.PREPARE_ABORT,
    },
    State.PREPARE_COMMIT: {Event.MARKED: State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {Event.MARKED: State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: _AT_REST,
    State.COMPLETE_ABORT: _AT_REST,
    State.DEAD: {},
    State.PREPARE_EPOCH_FENCE: {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    last_update_ms: int
    start_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last bump, if its owner may continue with the new one."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The id that last_producer_epoch belongs to, if the id has changed with it."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id with which the producer continues when its epochs are used up and the markers are written."""
    client_version: int = 0
    """2 if the epoch was raised by the end of the transaction (KIP-890)."""

    @property
    def stored(self) -> Identity:
        return self.producer_id, self.producer_epoch

    @property
    def current(self) -> Identity:
        """The producer id and epoch to continue with."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.stored

    @property
    def predecessor(self) -> Identity | None:
        """The id and epoch before `current`: a request with them is a retry."""
        if self.last_producer_epoch == NO_EPOCH:
            return None
        if self.producer_epoch == self.last_producer_epoch + 1:
            return self.producer_id, self.last_producer_epoch
        return self.previous_producer_id, self.last_producer_epoch

    @property
    def prepared(self) -> bool:
        """True if it is decided, and waiting for the markers."""
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    def allows(self, event: Event) -> bool:
        return event in TRANSITIONS[self.state]

    def after(self, event: Event) -> State:
        """The state that an allowed event leads to."""
        return TRANSITIONS[self.state][event]


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


def record_of(transaction: Transaction) -> StateRecord:
    return StateRecord(_key(transaction.transactional_id), pack(_value(transaction), _VALUE_VERSION))


def tombstone(transactional_id: str) -> StateRecord:
    return StateRecord(_key(transactional_id), None)


def read_key(key: bytes) -> str | None:
    """The transactional id; None for a kind of record that this version does not know."""
    if version_of(key) != _KEY_VERSION:
        return None
    return unpack(TransactionLogKey, key).transactional_id


def read_value(transactional_id: str, data: bytes) -> Transaction:
    value = unpack(TransactionLogValue, data)
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=_state(value.transaction_status),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions=frozenset(_flat(value.transaction_partitions or ())),
        last_producer_epoch=value.last_producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """The partitions of each topic, in order: the same set always gives the same bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _key(transactional_id: str) -> bytes:
    return pack(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def _value(transaction: Transaction) -> TransactionLogValue:
    topics = [
        PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic(transaction.partitions)
    ]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is State.EMPTY else topics,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
        last_producer_epoch=transaction.last_producer_epoch,
    )


def _state(number: int) -> State:
    try:
        return State(number)
    except ValueError:
        raise ProtocolError(f"no transaction has the state {number}") from None


def _flat(topics: Iterable[PartitionsSchema]) -> Iterable[TopicPartition]:
    return ((topic.topic, partition) for topic in topics for partition in topic.partition_ids)
