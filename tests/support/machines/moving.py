"""Movers of several terms at once, with their real journal and the real check of sequence numbers.

Everything that travels can be late, be lost, or arrive twice: requests to the journal, batches to the target.
A mover can die between any two of its steps; a fenced one goes on for as long as it is allowed to.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from forebay.core.partition.producers.producer_admission import APPEND, Repeats, admit
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.core.record_moves.journal import MoveJournalShard, read_pending, sent_pending
from forebay.core.record_moves.move import Move, MoverState
from forebay.core.record_moves.mover import (
    Action,
    Ask,
    Confirm,
    Identify,
    Journal,
    Moving,
    Open,
    Plan,
    Send,
    Sent,
    moving,
)
from forebay.core.step import Now, RequestInfo, StateRecord
from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, read_header
from forebay.wire.messages.move_journal import MoveJournalRequest, MoveJournalResponse
from forebay.wire.records import Record

MOVER = "dlq:g:t:0"
INFO = RequestInfo(api_version=0)


class JournalLog:
    """The journal on its log, from which it is built again at any moment."""

    def __init__(self) -> None:
        self.machine = MoveJournalShard()
        self.log: list[StateRecord] = []
        self.now = Now(ms=0, wall_ms=0, trusted_ms=0)

    def ask(self, request: MoveJournalRequest) -> MoveJournalResponse:
        step = self.machine.journal("ticket", request, INFO, self.now)
        self.keep(step.records)
        ((_, answer),) = step.replies
        assert isinstance(answer, MoveJournalResponse)
        return answer

    def keep(self, records: list[StateRecord]) -> None:
        for record in records:
            self.machine.replay(record)
        self.log += records

    def reload(self) -> None:
        before = self.machine.movers
        self.machine = MoveJournalShard()
        for record in self.log:
            self.machine.replay(record)
        assert self.machine.movers == before


def journal_request(term: int, state: MoverState | None = None) -> MoveJournalRequest:
    """What a mover asks to open its journal, or to write it."""
    if state is None:
        return MoveJournalRequest(mover_id=MOVER, term=term)
    return MoveJournalRequest(
        mover_id=MOVER,
        term=term,
        version=state.version,
        producer_id=state.producer_id,
        next_sequence=state.next_sequence,
        pending=sent_pending(state.pending),
    )


def mover_state(answer: MoveJournalResponse, term: int) -> MoverState:
    """What a mover learns from the answer."""
    return MoverState(
        term=term,
        version=answer.version,
        producer_id=answer.producer_id,
        next_sequence=answer.next_sequence,
        pending=None if answer.pending is None else read_pending(answer.pending),
    )


class Target:
    """A topic of one partition, with what it has of each producer."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.producers = ProducerTable()
        self.items: list[int] = []

    def append(self, state: MoverState) -> Sent:
        assert state.pending is not None
        items = [*state.pending.entries]
        batch = build_batch(
            [Record(n, 0, None, None) for n in range(len(items))],
            producer_id=state.producer_id,
            producer_epoch=0,
            base_sequence=state.next_sequence,
        )
        header = read_header(batch)._replace(base_offset=len(self.items))
        decision = admit(self.producers.find(state.producer_id), header)
        if decision is APPEND:
            self.producers.accept(header)
            self.items += items
        elif not isinstance(decision, Repeats):
            return Sent.OUT_OF_ORDER
        return Sent.COMMITTED


class Source:
    """Records that wait to be moved; only the newest term may say that they are."""

    def __init__(self) -> None:
        self.term = 0
        self.waiting: dict[int, None] = {}
        self.added: list[int] = []

    def add(self, item: int) -> None:
        self.waiting[item] = None
        self.added.append(item)


class World:
    def __init__(self, seed: int, *, deletes_target: bool = False) -> None:
        self.random = Random(seed)
        self.journal = JournalLog()
        self.source = Source()
        self.target = Target(b"0" * 16)
        self.revision = 0
        self.producer_ids = 0
        self.movers: list[LiveMover] = []
        self.late: list[MoverState] = []
        """Batches that may still arrive, whether or not their sender lives."""
        self.late_journaling: list[MoveJournalRequest] = []
        self._deletes_target = deletes_target
        self.steps: Counter[str] = Counter()

    def take_over(self) -> None:
        """Another leader; it does not know who else still believes to lead."""
        self.source.term += 1
        self.movers.append(LiveMover(self, self.source.term))

    def restart(self) -> None:
        """The same leader loads its state again."""
        self.movers.append(LiveMover(self, self.source.term))

    def turn(self) -> None:
        chance = self.random.random()
        if chance < 0.1 and len(self.source.added) < 250:
            self.source.add(len(self.source.added))
        elif chance < 0.13:
            self.take_over()
        elif chance < 0.16 and self.source.term:
            self.restart()
        elif chance < 0.20 and self.movers:
            self.movers.remove(self.random.choice(self.movers))  # it dies
        elif chance < 0.22:
            self.journal.reload()
        elif chance < 0.30 and self.late:
            self.deliver(self.random.choice(self.late))
        elif chance < 0.34 and self.late_journaling:
            self.journal.ask(self.random.choice(self.late_journaling))
        elif chance < 0.345 and self._deletes_target:
            self.recreate_target()
        elif self.movers:
            self.random.choice(self.movers).step()

    def recreate_target(self) -> None:
        """The copies go with it. Records that were moved stay moved; the others go to the new one."""
        self.revision += 1
        self.target = Target(self.revision.to_bytes(16))

    def deliver(self, state: MoverState) -> Sent:
        assert state.pending is not None
        if state.pending.topic_id != self.target.topic_id:
            return Sent.TARGET_GONE
        return self.target.append(state)

    def finish(self) -> None:
        """No more faults: a last leader moves all that is left, and what is late arrives."""
        self.take_over()
        while not self.movers[-1].is_done:
            self.movers[-1].step(faults=False)
        for state in self.late:
            self.deliver(state)
        assert not self.source.waiting


class LiveMover:
    def __init__(self, world: World, term: int) -> None:
        self.term = term
        self._world = world
        self._waiting = dict(world.source.waiting)
        """What it believes to wait: it may be fenced, and then what it knows is old."""
        self._generator: Moving = moving(None)
        self._action: Action = next(self._generator)
        self.is_done = False
        self._state: MoverState | None = None

    @property
    def _is_fenced(self) -> bool:
        return self.term < self._world.source.term

    def step(self, *, faults: bool = True) -> None:
        """Carry out what it wants; perhaps the answer is lost, and it does the same again later."""
        world = self._world
        if not self._is_fenced:
            self._waiting = dict(world.source.waiting)
        if self.is_done:
            self._restart(self._state)
            return
        world.steps[type(self._action).__name__] += 1
        outcome = self._outcome(self._action)
        if outcome is NotImplemented:
            return
        if faults and world.random.random() < 0.1 and not isinstance(self._action, Confirm):
            return
        if outcome is ErrorCode.FENCED_LEADER_EPOCH:
            self._restart(None)
            return
        try:
            self._action = self._generator.send(outcome)
        except StopIteration as end:
            self.is_done, self._state = True, end.value

    def _restart(self, state: MoverState | None) -> None:
        self.is_done = False
        self._generator = moving(state)
        self._action = next(self._generator)

    def _outcome(self, action: Action) -> object:
        world = self._world
        match action:
            case Open():
                return self._journal(journal_request(self.term))
            case Journal(state):
                return self._journal(journal_request(self.term, state))
            case Identify():
                world.producer_ids += 1
                return world.producer_ids
            case Ask(move):
                return move.topic_id == world.target.topic_id and any(
                    i in self._waiting for i in move.entries
                )
            case Plan():
                return self._plan()
            case Send(state):
                world.late.append(state)
                del world.late[:-20]
                return world.deliver(state)
            case Confirm(move):
                if self._is_fenced:
                    return NotImplemented  # its write is refused: it hangs until it dies
                for item in move.entries:
                    world.source.waiting.pop(item, None)
                    self._waiting.pop(item, None)
                return None

    def _journal(self, request: MoveJournalRequest) -> object:
        self._world.late_journaling.append(request)
        del self._world.late_journaling[:-10]
        answer = self._world.journal.ask(request)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return mover_state(answer, request.term)

    def _plan(self) -> Move | None:
        world = self._world
        items = bytes(list(self._waiting)[: world.random.randint(1, 4)])
        if not items:
            return None
        return Move(
            topic_id=world.target.topic_id,
            partition=0,
            record_count=len(items),
            entries=items,
            revision=world.revision,
        )
