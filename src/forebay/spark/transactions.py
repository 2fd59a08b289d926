"""How the tasks of one batch commit together: all of its rows, once, or none.

Kafka commits a transaction of one producer; a batch has a producer in every task. So the tasks only write:
each leaves its transaction open and hands its producer's id and epoch to the driver, a *participant*. The
driver then takes one step that decides everything: in a transaction of its own it records, as the offset of a
consumer group, the number of the batch with the list of its participants. That is the *decision*. It is there
or it is not, and nothing has become visible before. Only then are the participants committed, which can be
repeated by anyone who reads the decision, any number of times.

    group   spark-sink-<name>            name: the id of the streaming query, or the jobId of a batch write
    offset  the number of the batch      metadata: the participants, in further groups where they are many

Deciding is a compare-and-set: the driver first takes over the transactional id spark-sink-<name>, which
fences any other driver in the middle of deciding, reads what is decided, and records only if this batch is
not. Two drivers of one query, one of them thought dead, end up with one decision between them, and the other
one's participants are aborted. Participants belong to a run, so that nobody else's attempt can touch them.

Killed at any moment, the query is started again and Spark repeats the batch, with the same number:

- before the decision: nothing is visible; the batch is written anew, and what the dead run left open is
  aborted, so that it does not hold up readers;
- after it: tasks find the decision and write nothing, the driver commits the participants;
- after it, and not started again within the transaction timeout: brokers have aborted the participants that
  were not committed yet. Their tasks write these rows again, as new participants of the same decision. This
  alone needs a batch to be divided among tasks as before (replays of a topic are), and is refused when the
  number of rows differs. Whoever stays away longer than brokers keep offsets and transactional ids (a week
  each by default) has lost the decision with them.

The ids of participants alternate between even and odd batches: a run that was thought dead and went on to the
next batch has not used again what a decision names.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.spark.connection import GROUP, TRANSACTION, BrokerConnection, Cluster
from forebay.spark.producer import Identity, check, new_identity
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from forebay.wire.messages.describe_transactions import DescribeTransactionsRequest
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.list_transactions import ListTransactionsRequest
from forebay.wire.messages.offset_fetch import OffsetFetchRequest
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

METADATA_BYTES_MAX = 4000
"""Of an offset; brokers allow 4096 unless they are told otherwise."""
PIECES_MAX = 128
RUN_CHARACTERS = 12

_ADD_OFFSETS_VERSION = 3
_TXN_OFFSET_COMMIT_VERSION = 4
_END_TXN_VERSION = 4
"""The last ones in which a producer adds to its transaction by itself, and keeps its epoch at the end."""
_OFFSET_FETCH_VERSION = 7
_DECISION_TIMEOUT_MS = 60_000
_DRIVERS_MAX = 5
_NAMED_MAX = 5
_SLOT = 0
"""The partition under which the offset is kept: every topic has it."""

_OPEN = "Ongoing"
_ABORTED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
_LABEL = re.compile(rf"[0-9a-f]{{{RUN_CHARACTERS}}}-\d+\.(?P<turn>[01])(\.\d+)?")
_FORGOTTEN = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


class Participant(NamedTuple):
    """The open transaction of a task, and how many rows are in it."""

    task: int
    label: str
    """What tells its transactional id from the others of the same name."""
    producer_id: int
    epoch: int
    rows: int

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.epoch)


class Attempt(NamedTuple):
    """One try of one task at writing its part of a batch."""

    name: str
    run: str
    """RUN_CHARACTERS hexadecimal digits."""
    batch_id: int
    task: int
    retry: int = 0
    """How many attempts came before this one."""

    @property
    def label(self) -> str:
        """Differs from that of other runs, of other tasks, of other attempts, and of the next batch."""
        retry = f".{self.retry}" if self.retry else ""
        return f"{self.run}-{self.task}.{_turn(self.batch_id)}{retry}"

    @property
    def transactional_id(self) -> str:
        return _transactional_id(self.name, self.label)


def _turn(batch_id: int) -> int:
    return batch_id & 1


def _transactional_id(name: str, label: str) -> str:
    return f"spark-{name}-{label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    batch_id: int
    topic: str
    """One that the batch was written to; the offset is kept under its name."""
    participants: tuple[Participant, ...]

    def of_task(self, task: int) -> Participant | None:
        return next((each for each in self.participants if each.task == task), None)

    def repaired(self, again: Iterable[Participant]) -> Decision:
        """The same with these participants in the place of those of the same tasks."""
        new = {each.task: each for each in again}
        return replace(self, participants=tuple(new.get(each.task, each) for each in self.participants))

    def text(self) -> str:
        return json.dumps(self.participants, separators=(",", ":"))


def _parsed(batch_id: int, topic: str, text: str) -> Decision:
    participants = tuple(Participant(*each) for each in json.loads(text))
    return Decision(batch_id=batch_id, topic=topic, participants=participants)


class Ledger:
    """What has been decided for one query or job."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._group = f"spark-sink-{name}"

    # -- decisions ------------------------------------------------------------------------------------------

    def read(self) -> Decision | None:
        """The latest decision, not counting one that is just being made."""
        return self._cluster.attempt(partial(self._read, stable=False))

    def decide(self, proposal: Decision, instead_of: Decision | None = None) -> Decision:
        """The decision that holds from now on: the proposal, unless its batch was decided before.

        What was decided makes way only if it is exactly `instead_of`.
        """
        pieces = _pieces(proposal.text())
        for _ in range(_DRIVERS_MAX):
            identity, held = self._take_over()
            if held is not None and held.batch_id >= proposal.batch_id and held != instead_of:
                return held
            self._check_open(proposal, () if instead_of is None else instead_of.participants)
            try:
                self._record(identity, proposal, pieces)
            except KafkaError as error:
                if error.code not in _ABORTED:
                    raise
            else:
                return proposal
        raise ForebayError(f"another driver keeps writing as {self._name}: stop one of them")

    def settled(self) -> Decision | None:
        """The latest decision, after any attempt to make one has succeeded or failed for good."""
        return self._take_over()[1]

    def _take_over(self) -> tuple[Identity, Decision | None]:
        """Fence whoever is deciding, and see what has been decided."""
        identity = new_identity(self._cluster, self._group, _DECISION_TIMEOUT_MS)
        return identity, self._cluster.attempt(partial(self._read, stable=True))

    # -- participants ---------------------------------------------------------------------------------------

    def _check_open(self, proposal: Decision, known: Collection[Participant]) -> None:
        """While nothing is decided, a batch that has lost rows can simply fail, and be written anew."""
        new = [each for each in proposal.participants if each not in known]
        wanted = {_transactional_id(self._name, each.label): each for each in new}
        still_open = self._cluster.attempt(partial(self._open_identities, list(wanted)))
        lost = [each for name, each in wanted.items() if still_open.get(name) != each.identity]
        if lost:
            raise ForebayError(
                f"batch {proposal.batch_id} of {self._name} cannot be committed: the rows of"
                f" {named_tasks(lost)} were aborted, most likely because the batch took longer than"
                " kafka.transaction.timeout.ms; raise it, or make batches smaller"
            )

    def _open_identities(self, transactional_ids: Iterable[str]) -> dict[str, Identity]:
        by_coordinator: dict[BrokerConnection, list[str]] = defaultdict(list)
        for each in transactional_ids:
            by_coordinator[self._cluster.coordinator(each, TRANSACTION)].append(each)
        found = {}
        for coordinator, ids in by_coordinator.items():
            for state in coordinator.ask(
                DescribeTransactionsRequest(transactional_ids=ids)
            ).transaction_states:
                if state.error_code not in _FORGOTTEN:
                    check(state.error_code, f"the state of {state.transactional_id}")
                if state.transaction_state == _OPEN:
                    found[state.transactional_id] = Identity(state.producer_id, state.producer_epoch)
        return found

    def commit(self, participant: Participant) -> bool:
        """Whether the participant is committed, now or since earlier; otherwise brokers have aborted it."""
        transactional_id = _transactional_id(self._name, participant.label)
        try:
            self._cluster.attempt(partial(self._end_txn, transactional_id, participant.identity, True))
        except KafkaError as error:
            if error.code in _ABORTED:
                return False
            if error.code not in _FORGOTTEN:
                raise
            raise ForebayError(
                f"the brokers no longer know {transactional_id}: the query stayed away for longer than"
                " transactional.id.expiration.ms, and whether its last batch is complete cannot be told"
            ) from error
        return True

    def abort(self, participant: Participant) -> None:
        """Abort one that is in no decision; if that has happened already, all the better."""
        transactional_id = _transactional_id(self._name, participant.label)
        try:
            self._cluster.attempt(partial(self._end_txn, transactional_id, participant.identity, False))
        except KafkaError as error:
            if error.code not in (*_ABORTED, *_FORGOTTEN):
                raise

    def abort_strays(self, decision: Decision) -> None:
        """Abort what other attempts at the same batch have left open, which would hold up readers."""
        decided = {each.label for each in decision.participants}
        for label in self._cluster.attempt(self._open_labels):
            parts = _LABEL.fullmatch(label)
            if parts and int(parts["turn"]) == _turn(decision.batch_id) and label not in decided:
                new_identity(self._cluster, _transactional_id(self._name, label))

    def _end_txn(self, transactional_id: str, identity: Identity, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
        )
        coordinator = self._cluster.coordinator(transactional_id, TRANSACTION)
        check(coordinator.ask(request, _END_TXN_VERSION).error_code, f"the end of {transactional_id}")

    def _open_labels(self) -> list[str]:
        prefix = _transactional_id(self._name, "")
        found = []
        for broker in self._cluster.everyone():
            answer = broker.ask(ListTransactionsRequest(state_filters=[_OPEN]))
            check(answer.error_code, "the list of transactions")
            found += [each.transactional_id for each in answer.transaction_states]
        return [each.removeprefix(prefix) for each in found if each.startswith(prefix)]

    # -- the group ------------------------------------------------------------------------------------------

    def _read(self, *, stable: bool) -> Decision | None:
        slots = self._offsets(self._group, stable)
        if not slots:
            return None
        topic, (batch_id, text) = max(slots.items(), key=lambda slot: slot[1][0])
        count, _, text = text.partition(";")
        for n in range(1, int(count)):
            number, piece = self._offsets(self._piece(n), stable).get(topic, (-1, ""))
            if number != batch_id:
                # Another driver has decided the next batch between two of our questions.
                raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"{self._group} is being written")
            text += piece
        return _parsed(batch_id, topic, text)

    def _offsets(self, group: str, stable: bool) -> dict[str, tuple[int, str]]:
        """Number and metadata under each topic."""
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=stable)
        answer = self._cluster.coordinator(group, GROUP).ask(request, _OFFSET_FETCH_VERSION)
        check(answer.error_code, f"the offsets of {group}")
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"the offset of {group}")
                if partition.partition_index == _SLOT and partition.committed_offset >= 0:
                    found[topic.name] = (partition.committed_offset, partition.metadata or "")
        return found

    def _record(self, identity: Identity, decision: Decision, pieces: Sequence[str]) -> None:
        for n, piece in enumerate(pieces):
            self._cluster.attempt(partial(self._add_group, identity, self._piece(n)))
            self._cluster.attempt(partial(self._put, identity, self._piece(n), decision, piece))
        self._cluster.attempt(partial(self._end_txn, self._group, identity, True))

    def _add_group(self, identity: Identity, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group,
        )
        answer = self._cluster.coordinator(self._group, TRANSACTION).ask(request, _ADD_OFFSETS_VERSION)
        check(answer.error_code, f"{group} in a transaction")

    def _put(self, identity: Identity, group: str, decision: Decision, piece: str) -> None:
        offset = TxnOffsetCommitRequestPartition(
            partition_index=_SLOT, committed_offset=decision.batch_id, committed_metadata=piece
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._group,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=decision.topic, partitions=[offset])],
        )
        answer = self._cluster.coordinator(group, GROUP).ask(request, _TXN_OFFSET_COMMIT_VERSION)
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"batch {decision.batch_id} of {self._name}")

    def _piece(self, n: int) -> str:
        return f"{self._group}.{n}" if n else self._group


def named_tasks(participants: Sequence[Participant]) -> str:
    """task 3, 5, 6 and 12 others"""
    others = len(participants) - _NAMED_MAX
    names = ", ".join(str(each.task) for each in participants[:_NAMED_MAX])
    return f"task {names}" + (f" and {others} others" if others > 0 else "")


def _pieces(text: str) -> list[str]:
    """The text in parts that fit, the first of which begins with how many there are."""
    size = METADATA_BYTES_MAX - len(f"{PIECES_MAX};")
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    if len(parts) > PIECES_MAX:
        raise ForebayError(
            "an exactly-once batch has too many tasks to commit them together: coalesce() them to some"
            f" {PIECES_MAX * size // 64}"
        )
    return [f"{len(parts)};{parts[0]}", *parts[1:]]
