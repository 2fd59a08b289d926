"""How the tasks of one batch commit together: all of its rows, once, or none.

Kafka commits a transaction of one producer; a batch has a producer in every task. So the tasks only write:
each leaves its transaction open and hands its producer's id and epoch to the driver, a *participant*. The
driver then takes one step that decides everything: in a transaction of its own it records, as the offset of a
consumer group, the number of the batch with the list of its participants. That is the *decision*. It is there
or it is not, and nothing has become visible before.

    group   spark-sink-<name>            name: the id of the streaming query, or the jobId of a batch write
    offset  the number of the batch      metadata: the participants (`decision_records.py`)

With the decision the participants are committed. Forebay's brokers do both in one step: all of these
transactions live with one coordinator (`coordinator_choice.py`), and the EndTxn that commits the driver's
names the others. From then on the brokers see all of them to their end, whatever becomes of the driver.
Other brokers commit one transaction at a time, so there the participants follow the decision one by one,
which can be repeated by any driver that reads it, any number of times.

Deciding is a compare-and-set: the driver first takes over the transactional id spark-sink-<name>, which
fences any other driver in the middle of deciding, reads what is decided, and records only if this batch is
not. Two drivers of one query, one of them thought dead, end up with one decision between them, and the other
one's participants are aborted. Participants belong to a run, so no other run can touch them.

Killed at any moment, the query is started again and Spark repeats the batch, with the same number:

- before the decision: nothing is visible; the batch is written anew, and what the dead run left open is
  aborted, so that it does not hold up readers. If the query is not started again, brokers abort its
  transactions when these time out, soon after the last renewal (`renewal.py`);
- after it: tasks find the decision and write nothing, the driver commits what is not committed yet;
- after it, not in one step with it, and not started again within the transaction timeout: brokers have
  aborted the participants that were not committed yet. Their tasks write these rows again, as new
  participants of the same decision. This alone needs a batch to be divided among tasks as before (replays of
  a topic are), and is refused when the number of rows differs.

Forebay's brokers keep a decision for ever (`core/groups/classic/group.py`), so that a query may be started
again after any time. Others forget it with the offsets of a group without members, after a week by default.
That of a batch write is kept there too (`finished_jobs.py`).

The ids of participants alternate between even and odd batches: a run that was thought dead and went on to the
next batch has not used again what a decision names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.spark.sink.producer import Identity, new_identity
from forebay.spark.sink.transactions.coordinator_choice import StatePartition, state_partition_of
from forebay.spark.sink.transactions.decision_records import DecisionRecords
from forebay.spark.sink.transactions.participants import (
    Attempt,
    Decision,
    Participant,
    Settled,
    group_of,
    marked,
    named_tasks,
    pieces_of,
    transactional_id_of,
    turn_in,
    turn_of,
)
from forebay.spark.wire.connections import TRANSACTION, BrokerConnection, Cluster, check
from forebay.wire.messages.describe_transactions import DescribeTransactionsRequest
from forebay.wire.messages.end_txn import FURTHER_MAX, EndTxnRequest, EndTxnResponse, FurtherTxn
from forebay.wire.messages.list_transactions import ListTransactionsRequest

_END_TXN_VERSION = 4
"""The last one in which a producer keeps its epoch at the end."""
_DECISION_TIMEOUT_MS = 60_000
_DRIVERS_MAX = 5

_OPEN = "Ongoing"
_ABORTED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
_FORGOTTEN = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


class Ledger:
    """The decisions about one query or job."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._group = group_of(name)
        self._records = DecisionRecords(cluster, name)

    # -- decisions ------------------------------------------------------------------------------------------

    def read(self) -> Decision | None:
        """The latest decision, not counting one that is just being made."""
        return self._cluster.attempt(partial(self._records.read, stable=False))

    def decide(self, proposal: Decision, instead_of: Decision | None = None) -> Settled:
        """The decision that holds from now on: the proposal, unless its batch was decided before.

        What was decided makes way only if it is exactly `instead_of`.
        """
        pieces = pieces_of(proposal.text())
        known = () if instead_of is None else instead_of.participants
        new = [each for each in proposal.participants if each not in known]
        for _ in range(_DRIVERS_MAX):
            identity, held = self._take_over()
            if held is not None and held.batch_id >= proposal.batch_id and held != instead_of:
                return Settled(held)
            co_located = self._co_located(new)
            if not co_located:  # else their coordinator looks after it
                self._check_open(proposal, new)
            try:
                return Settled(proposal, self.record(identity, proposal, pieces, co_located))
            except KafkaError as error:
                # Another driver has taken over; or the id was forgotten, together with those of a name that
                # begins in the same way (`id_prefixes.py`). Nothing is decided, or the next look finds it.
                if error.code not in (*_ABORTED, *_FORGOTTEN):
                    raise
        raise ForebayError(f"another driver keeps writing as {self._name}: stop one of them")

    def settled(self) -> Decision | None:
        """The latest decision, after any attempt to make one has succeeded or failed for good."""
        return self._take_over()[1]

    def _take_over(self) -> tuple[Identity, Decision | None]:
        """Fence any driver that is deciding, and read what has been decided."""
        identity = new_identity(self._cluster, self._group, _DECISION_TIMEOUT_MS)
        return identity, self._cluster.attempt(partial(self._records.read, stable=True))

    # -- participants ---------------------------------------------------------------------------------------

    def placed(self, attempt: Attempt) -> Attempt:
        """The same with a transactional id that can be committed in one step with the decision."""
        partition = self._state_partition()
        if partition is None:
            return attempt
        return attempt._replace(salt=partition.salt_for(f"{attempt.transactional_id}~"))

    def _co_located(self, participants: Sequence[Participant]) -> Sequence[Participant]:
        """The participants that can be committed in one step with the decision: all of them, or none."""
        partition = self._state_partition()
        if partition is None or not all(partition.holds(self._id_of(each)) for each in participants):
            return ()
        if len(participants) > FURTHER_MAX:
            raise _too_many(FURTHER_MAX)
        return participants

    def _state_partition(self) -> StatePartition | None:
        return self._cluster.attempt(partial(state_partition_of, self._cluster, self._group))

    def _id_of(self, participant: Participant) -> str:
        return transactional_id_of(self._name, participant.label)

    def _check_open(self, proposal: Decision, new: Collection[Participant]) -> None:
        """While nothing is decided, a batch that has lost rows can simply fail, and be written anew."""
        wanted = {self._id_of(each): each for each in new}
        still_open = self._cluster.attempt(partial(self._open_identities, list(wanted)))
        lost = [each for name, each in wanted.items() if still_open.get(name) != each.identity]
        if lost:
            raise self._lost(proposal, lost)

    def _lost(self, proposal: Decision, lost: Sequence[Participant]) -> ForebayError:
        return ForebayError(
            f"batch {proposal.batch_id} of {self._name} cannot be committed: the rows of"
            f" {named_tasks(lost)} were aborted, most likely because no task has renewed them for longer than"
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
        """True if the participant is committed, now or since earlier; otherwise brokers have aborted it."""
        try:
            self._cluster.attempt(partial(self._end_alone, participant, True))
        except KafkaError as error:
            if error.code in _ABORTED:
                return False
            if error.code not in _FORGOTTEN:
                raise
            if self._co_located([participant]):
                return True  # in one step with the decision, and expired since
            raise ForebayError(
                f"the brokers no longer know {self._id_of(participant)}: the query stayed away for longer"
                " than transactional.id.expiration.ms, and whether its last batch is complete cannot be told;"
                " compare the topic with what was read, and go on with a new checkpoint"
            ) from error
        return True

    def abort(self, participant: Participant) -> None:
        """Abort a participant that is in no decision. Does nothing if it is aborted already."""
        try:
            self._cluster.attempt(partial(self._end_alone, participant, False))
        except KafkaError as error:
            if error.code not in (*_ABORTED, *_FORGOTTEN):
                raise

    def abort_strays(self, decision: Decision) -> None:
        """Abort what other attempts at the same batch have left open, which would hold up readers."""
        decided = {each.label for each in decision.participants}
        for label in self._cluster.attempt(self._open_labels):
            if turn_in(label) == turn_of(decision.batch_id) and label not in decided:
                self._fence(label)

    def abort_undecided(self, labels: Iterable[str]) -> None:
        """Abort what these attempts have left open, unless it is decided."""
        held = self.settled()
        decided = {each.label for each in held.participants} if held is not None else set()
        for label in set(labels) - decided:
            self._fence(label)

    def _fence(self, label: str) -> None:
        """Take over the transactional id of an attempt, which aborts what it has open."""
        new_identity(self._cluster, transactional_id_of(self._name, label))

    def _end_alone(self, participant: Participant, committed: bool) -> None:
        transactional_id = self._id_of(participant)
        answer = self.end_txn(transactional_id, participant.identity, committed)
        check(answer.error_code, f"the end of {transactional_id}")

    def end_txn(
        self, transactional_id: str, identity: Identity, committed: bool, further: Sequence[FurtherTxn] = ()
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
            further=list(further),
        )
        coordinator = self._cluster.coordinator(transactional_id, TRANSACTION)
        answer: EndTxnResponse = coordinator.ask(request, _END_TXN_VERSION)
        return answer

    def _open_labels(self) -> list[str]:
        prefix = transactional_id_of(self._name, "")
        return [each.removeprefix(prefix) for each in open_ids(self._cluster) if each.startswith(prefix)]

    # -- the record ------------------------------------------------------------------------------------------

    def record(
        self, identity: Identity, decision: Decision, pieces: Sequence[str], co_located: Sequence[Participant]
    ) -> frozenset[Participant]:
        """Make the decision; the participants that were committed with it."""
        in_one_step = len(co_located) == len(decision.participants)
        self._records.add(identity, decision, pieces, in_one_step=in_one_step)
        return self._cluster.attempt(partial(self.conclude, identity, decision, co_located))

    def conclude(
        self, identity: Identity, decision: Decision, co_located: Sequence[Participant]
    ) -> frozenset[Participant]:
        further = [
            FurtherTxn(
                transactional_id=self._id_of(each), producer_id=each.producer_id, producer_epoch=each.epoch
            )
            for each in co_located
        ]
        answer = self.end_txn(self._group, identity, True, further)
        codes = answer.further_error_codes
        if answer.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED and codes is not None:
            wrong = [each for each, code in zip(co_located, codes, strict=True) if code != answer.error_code]
            raise self._lost(decision, wrong)
        if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            raise _too_many(len(co_located) // 2)
        check(answer.error_code, f"the end of {self._group}")
        # No error codes for them: the coordinator is an older broker that did not read the list.
        return frozenset(co_located if codes is not None else ())


def abort_marked(cluster: Cluster, mark: str) -> None:
    """Abort what attempts have left open whose run ends with this mark, unless it is decided."""
    labels: dict[str, list[str]] = defaultdict(list)
    for transactional_id in cluster.attempt(partial(open_ids, cluster)):
        found = marked(transactional_id, mark)
        if found is not None:
            labels[found[0]].append(found[1])
    for name, own in labels.items():
        Ledger(cluster, name).abort_undecided(own)


def open_ids(cluster: Cluster) -> list[str]:
    """The transactional ids of all open transactions there are."""
    found = []
    for broker in cluster.everyone():
        answer = broker.ask(ListTransactionsRequest(state_filters=[_OPEN]))
        check(answer.error_code, "the list of transactions")
        found += [each.transactional_id for each in answer.transaction_states]
    return found


def _too_many(tasks: int) -> ForebayError:
    return ForebayError(
        f"an exactly-once batch has too many tasks to commit them in one step: coalesce() them to {tasks}"
    )
