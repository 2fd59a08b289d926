"""Both sides of an exactly-once write: the task that prepares its rows, the driver that commits them all.

The protocol, and why it is safe, is in `batch_decisions.py`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from forebay.errors import ForebayError
from forebay.lazy import dataclass
from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.producer import Producer, new_identity
from forebay.spark.sink.task import TaskSink, rounds
from forebay.spark.sink.transactions import id_prefixes
from forebay.spark.sink.transactions.batch_decisions import Ledger, abort_marked
from forebay.spark.sink.transactions.participants import (
    RUN_CHARACTERS,
    Attempt,
    Decision,
    Participant,
    Settled,
    named_tasks,
    run_in,
)
from forebay.spark.wire.connections import Cluster

_log = logging.getLogger(__name__)

_KILLED_S = 3.0
"""Spark kills the other tasks of a write that fails, and their workers when they are still there after two
seconds (spark.python.task.killTimeout). After that no task opens a transaction."""
_LOOK_S = 0.25

RUNS_REMEMBERED_MAX = 64
_runs_tidied: dict[str, str] = {}
"""The run of each name in which this driver has looked for what an earlier one has left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(WriterCommitMessage):
    """The report of a task of an exactly-once write to the driver."""

    attempt: Attempt
    participant: Participant | None = None
    """None when the task had no rows, or found the batch decided."""
    topics: tuple[str, ...] = ()
    """Where its rows went."""
    found: bool = False
    """The batch had been decided before this task wrote."""
    repairs: Decision | None = None
    """A decision whose participant of this task is lost; the new participant is to take its place."""
    untidy: bool = False
    """Attempts that were not reported to the driver may have left transactions open."""


# -- in a task ----------------------------------------------------------------------------------------------


def prepare(
    cluster: Cluster,
    options: WriteOptions,
    columns: Columns,
    attempt: Attempt,
    batches: Iterator[pa.RecordBatch],
) -> Prepared:
    """Write the rows of a task and leave them to the driver to commit."""
    filled = rounds(batches)
    first = next(filled, None)
    if first is None:
        return Prepared(attempt=attempt)
    ledger = Ledger(cluster, attempt.name)
    decision = ledger.read()
    if decision is not None:
        _check_query(decision, attempt)
    if decision is None or decision.batch_id < attempt.batch_id:
        return _written(cluster, options, columns, attempt, chain([first], filled))
    _check_current(decision, attempt)
    _check_one_write(decision, attempt)
    _check_topic(decision, options)
    before = decision.of_task(attempt.task)
    if before is None or ledger.commit(before):
        for _ in filled:
            pass  # Spark expects its rows to be taken
        return Prepared(attempt=attempt, found=True)
    again = _written(cluster, options, columns, attempt, chain([first], filled), repairs=decision)
    _check_same(ledger, before, again)
    return again


def _written(
    cluster: Cluster,
    options: WriteOptions,
    columns: Columns,
    attempt: Attempt,
    batches: Iterator[pa.RecordBatch],
    repairs: Decision | None = None,
) -> Prepared:
    ledger = Ledger(cluster, attempt.name)
    attempt = ledger.placed(attempt)
    timeout_ms = options.transaction_timeout_ms or id_prefixes.timeout_ms(cluster, attempt.name)
    identity = new_identity(cluster, attempt.transactional_id, timeout_ms)
    family = id_prefixes.family_of(attempt.name, attempt.run)
    producer = Producer(cluster, identity, options.limits, attempt.transactional_id, family=family)
    try:
        TaskSink(producer, options, columns, attempt.task).write(batches)
    except BaseException:
        producer.abandon()
        with contextlib.suppress(ForebayError):
            ledger.abort(_participant(attempt, producer))
        raise
    return Prepared(
        attempt=attempt,
        participant=_participant(attempt, producer),
        topics=tuple(sorted(producer.delivered.topics)),
        found=repairs is not None,
        repairs=repairs,
        untidy=attempt.retry > 0,
    )


def _participant(attempt: Attempt, producer: Producer) -> Participant:
    return Participant(attempt.task, attempt.label, *producer.identity, producer.delivered.rows)


def _check_query(decision: Decision, attempt: Attempt) -> None:
    """Batches of a stream are known by their numbers, which begin anew with a new checkpoint."""
    if decision.query != attempt.query:
        raise ForebayError(
            f"the stream {attempt.name} has committed batch {decision.batch_id} from another checkpoint, and"
            " cannot tell which rows that were. Start it from that checkpoint; if it is lost, give"
            " startingOffsets from where the topic was not read yet and a streamId that is new"
        )


def _check_current(decision: Decision, attempt: Attempt) -> None:
    if decision.batch_id > attempt.batch_id:
        raise ForebayError(
            f"batch {attempt.batch_id} of {attempt.name} comes after batch {decision.batch_id} was committed:"
            " another driver runs the same query, or its checkpoint was put back to an earlier state"
        )


def _check_one_write(decision: Decision, attempt: Attempt) -> None:
    """A batch that Spark repeats is repeated by another run of the query. What comes from the same run is a
    second write of the batch, whose rows were never written."""
    write = attempt.run[RUN_CHARACTERS:]
    for run in {decision.repeated, *(run_in(each.label) for each in decision.participants)}:
        if write and run != attempt.run and run[:RUN_CHARACTERS] == attempt.run[:RUN_CHARACTERS]:
            raise ForebayError(
                f"batch {attempt.batch_id} has two writes to {', '.join(decision.topics)} with one streamId:"
                " the second would be taken for a repetition of the first. Give each write in foreachBatch a"
                " streamId of its own, or write the union of their rows"
            )


def _check_topic(decision: Decision, options: WriteOptions) -> None:
    """A job that is run again writes nothing, which is right only if it is the same job."""
    if options.job_id is None or options.topic is None:
        return
    if options.topic in decision.topics or options.dead_letters in decision.topics:
        return
    raise ForebayError(
        f"the job {options.job_id} has been written to {', '.join(decision.topics)}, and not to"
        f" {options.topic}: give each write a jobId of its own"
    )


def _check_same(ledger: Ledger, before: Participant, again: Prepared) -> None:
    assert again.participant is not None
    if again.participant.rows != before.rows:
        ledger.abort(again.participant)
        raise ForebayError(
            f"task {before.task} of batch {again.attempt.batch_id} was aborted by the brokers after the batch"
            f" was committed, since nobody completed it within kafka.transaction.timeout.ms. It had"
            f" {before.rows} rows and now has {again.participant.rows}, so that it cannot be written again"
        )


# -- on the driver ------------------------------------------------------------------------------------------


def commit(
    cluster: Cluster, messages: Sequence[Prepared], *, forget_name: bool = False, in_batch: bool = False
) -> None:
    """Make the rows of all tasks visible; returns when that cannot be undone any more.

    `forget_name`: no later write uses this name, so the brokers need not keep anything for it.
    `in_batch`: a write in foreachBatch, where another one may follow under the same name.
    """
    if not messages:
        return
    attempt = messages[0].attempt
    ledger = Ledger(cluster, attempt.name)
    mine = [message.participant for message in messages if message.participant is not None]
    new_run = _runs_tidied.get(attempt.name) != attempt.run
    settled = _decide(ledger, attempt, messages, mine, new_run)
    if settled is None:
        if forget_name:
            forget(cluster, attempt.name)
        return
    decision, ended = settled
    lost = [each for each in decision.participants if each not in ended and not ledger.commit(each)]
    for each in set(mine) - set(decision.participants):
        ledger.abort(each)
    if new_run or any(message.untidy for message in messages) or _has_strays(cluster, attempt):
        _tidy(ledger, attempt, decision)
    if lost:
        raise ForebayError(
            f"batch {attempt.batch_id} of {attempt.name} is committed, but brokers have aborted the rows of"
            f" {named_tasks(lost)}: start the query or the job again to write these once more"
        )
    if in_batch and any(message.found for message in messages):
        _note_repetition(ledger, decision, attempt)
    if forget_name:
        forget(cluster, attempt.name)


def _note_repetition(ledger: Ledger, decision: Decision, attempt: Attempt) -> None:
    """Have the decision say that this run has found it.

    A second write of this run is then known as one, and not taken for another repetition.
    """
    if attempt.query and decision.repeated != attempt.run:
        ledger.decide(replace(decision, repeated=attempt.run), instead_of=decision)


def forget(cluster: Cluster, name: str) -> None:
    """Let the brokers delete what they keep for a name that no later write uses."""
    try:
        id_prefixes.forget(cluster, name)
    except ForebayError as error:
        _log.warning("what brokers keep of %s stays until it expires: %s", name, error)


def _decide(
    ledger: Ledger, attempt: Attempt, messages: Sequence[Prepared], mine: Sequence[Participant], new_run: bool
) -> Settled | None:
    """The decision that holds for the batch; None when there is nothing to commit."""
    found = any(message.found for message in messages)
    if mine and not found:
        topics = {topic for message in messages for topic in message.topics}
        proposal = Decision(
            batch_id=attempt.batch_id,
            topics=tuple(sorted(topics)),
            participants=tuple(mine),
            query=attempt.query,
        )
        settled: Settled | None = ledger.decide(proposal)
    else:
        # Without rows there is nothing to decide, but what a dead run has decided must be completed.
        held = ledger.settled() if new_run or found else None
        settled = Settled(held) if held is not None else None
    if settled is not None:
        _check_query(settled.decision, attempt)
    if settled is None or settled.decision.batch_id < attempt.batch_id:
        return None
    held = settled.decision
    _check_current(held, attempt)
    if mine:
        _check_one_write(held, attempt)
    again = [message.participant for message in messages if message.repairs == held and message.participant]
    return ledger.decide(held.repaired(again), instead_of=held) if again else settled


def _has_strays(cluster: Cluster, attempt: Attempt) -> bool:
    """True if a transaction of this run is open though the batch has ended.

    An executor that was thought dead may open one after its task was done again elsewhere. Later batches
    renew it with their own, so that it would hold up readers for hours.
    """
    try:
        if not id_prefixes.can_look_after(cluster, attempt.name):
            return False  # these brokers do not renew transactions either
        return id_prefixes.renew(cluster, attempt.name, attempt.run) > 0
    except ForebayError as error:
        _log.warning("whether transactions of %s are left open is not known: %s", attempt.name, error)
        return False


def _tidy(ledger: Ledger, attempt: Attempt, decision: Decision) -> None:
    try:
        ledger.abort_strays(decision)
    except ForebayError as error:
        _log.warning("transactions of attempts that failed stay open until they time out: %s", error)
    if len(_runs_tidied) >= RUNS_REMEMBERED_MAX:
        _runs_tidied.clear()
    _runs_tidied[attempt.name] = attempt.run


def abort(cluster: Cluster, messages: Sequence[Prepared | None]) -> bool:
    """Give up a batch, unless it is decided: then it is completed as far as can be, never undone.

    Whether it may be decided. Spark calls this after tasks have failed, and also after `commit` has.
    """
    prepared = [message for message in messages if message is not None and message.participant is not None]
    if not prepared:
        return False
    ledger = Ledger(cluster, prepared[0].attempt.name)
    try:
        held = ledger.settled()
        decided = held.participants if held is not None else ()
        for message in prepared:
            if message.participant in decided:
                ledger.commit(message.participant)
            elif message.participant is not None:
                ledger.abort(message.participant)
    except ForebayError as error:
        _log.warning("the transactions of a failed batch stay open until they time out: %s", error)
        return True
    return held is not None


def abort_untold(cluster: Cluster, mark: str) -> None:
    """Give up what tasks of a failed write have prepared that were killed before they could tell of it.

    The mark is at the end of what the write, or the stream, names its runs.
    """
    deadline = time.monotonic() + _KILLED_S
    try:
        while time.monotonic() < deadline:
            abort_marked(cluster, mark)
            time.sleep(_LOOK_S)
    except ForebayError as error:
        _log.warning("transactions of tasks that were killed stay open until they time out: %s", error)
