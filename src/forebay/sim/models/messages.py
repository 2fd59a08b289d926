"""The model of a correct cluster: what the clients did, what they were answered, and the consequences.

Each rule is checked as soon as a client learns something that could break it; `finish` checks what can only
be known at the end. A rule relies only on answers that a client received. A message that was not acknowledged
may be there or not. A transaction whose producer got no answer may have ended either way, but all of it the
same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.alarms import Alarms
from forebay.sim.models.dead_letters import Letter, wrong_letters
from forebay.sim.models.delays import TopicDelay
from forebay.sim.models.facts import Content, Counts, Sent, Transaction, TransactionOutcome, name_of
from forebay.sim.models.folded_keys import FoldedKeys
from forebay.sim.models.folds import Folds, homes
from forebay.sim.models.groups import Groups
from forebay.sim.models.keyed import KeyedValues
from forebay.sim.models.producer_ids import ProducerIdOwners
from forebay.sim.models.share_records import Place
from forebay.sim.models.shares import Shares
from forebay.sim.models.topics import Topics
from forebay.sim.models.views import Views
from forebay.sim.world.places import FOLDED, LATER, PLAIN, SHARE_GROUP_NAME


class Model:
    def __init__(self, fail: Callable[[str], None], lasting: Container[TopicPartition]) -> None:
        self._fail = fail
        self.lasting = lasting
        """The partitions in which a message that was read stays. Elsewhere a broker that is the only in-sync
        replica may lose power, and with it messages that consumers have read."""
        self._counts = Counts()
        self._sent: dict[bytes, Sent] = {}
        self._told: dict[TopicPartition, dict[int, bytes]] = {}
        """The message at an offset, as a producer (acks=all) or a reader has learned it."""
        self._acknowledged: dict[bytes, tuple[TopicPartition, int]] = {}
        self._transactions: list[Transaction] = []
        self.groups = Groups(fail)
        self.shares = Shares(fail)
        self.shares.may_be_invisible = self._may_be_invisible
        self.shares.sent_at = lambda value: self._sent[value].sent_at
        self.keyed = KeyedValues(fail)
        self.producer_ids = ProducerIdOwners(fail)
        self.topics = Topics()
        self.topic_delay = TopicDelay(fail)
        self.views = Views(fail)
        self.alarms = Alarms(fail)
        self.folds = Folds(fail)
        self.folded_keys = FoldedKeys(fail)

    @property
    def counts(self) -> Counts:
        return replace(
            self._counts,
            offsets=self.groups.commits_count,
            claims=self.groups.claims_count,
            deliveries=self.shares.deliveries_count,
            finished=self.shares.finished_count,
            changes=self.topics.changes_count,
        )

    # -- what clients do ---------------------------------------------------------------------------------

    def send(self, value: bytes, sent: Sent) -> None:
        self._counts.sent += 1
        self._sent[value] = sent
        if sent.transaction is not None:
            sent.transaction.values.append(value)

    def acknowledge(self, value: bytes, offset: int) -> None:
        """All in-sync replicas have acknowledged a message: from now on it must be there."""
        sent = self._sent[value]
        self._counts.acknowledged += 1
        if sent.at in FOLDED:
            self.folds.acknowledge(value)
        elif offset >= 0:
            self._acknowledged[value] = (sent.at, offset)
            self._tell(sent.at, offset, value)

    def offsets(self, at: TopicPartition) -> list[int]:
        """The offsets of known messages."""
        return list(self._told.get(at, ()))

    def _may_be_invisible(self, place: Place) -> bool:
        """True if the share group need not get a message."""
        at, offset = place
        sent = self._sent.get(self._told.get(at, {}).get(offset, b""))
        if not self.shares.rules.is_committed or sent is None or sent.transaction is None:
            return False
        return sent.transaction.outcome is not TransactionOutcome.COMMITTED

    def begin(self, name: str) -> Transaction:
        transaction = Transaction(name)
        self._transactions.append(transaction)
        return transaction

    def end(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        transaction.outcome = outcome
        if outcome is TransactionOutcome.COMMITTED:
            self._counts.committed += 1
            for (group, at), offset in transaction.offsets.items():
                self.groups.committed(group, at, offset)
        elif outcome is TransactionOutcome.ABORTED:
            self._counts.aborted += 1

    def read(self, reader: str, at: TopicPartition, offset: int, value: bytes, *, committed: bool) -> None:
        self._counts.read += 1
        sent = self._sent.get(value)
        if sent is None:
            self._fail(f"{reader} read {value!r} at {name_of(at, offset)}, which nobody sent")
        elif at not in homes(sent.at):
            self._fail(
                f"{reader} read {value!r} at {name_of(at, offset)}, which was sent to {name_of(sent.at)}"
            )
        elif committed and (problem := _why_not_visible(sent)):
            self._fail(f"{reader} read {value!r} at {name_of(at, offset)} of a transaction that {problem}")
        if at in self.lasting:
            self._tell(at, offset, value)

    def _tell(self, at: TopicPartition, offset: int, value: bytes) -> None:
        before = self._told.setdefault(at, {}).setdefault(offset, value)
        if before != value:
            self._fail(f"{name_of(at, offset)} was {before!r} and is now {value!r}")

    # -- the end -----------------------------------------------------------------------------------------

    def finish(
        self,
        stored: Content,
        visible: Content,
        starts: Mapping[TopicPartition, int],
        letters: Sequence[Letter] = (),
    ) -> None:
        """Compare the model with the messages at the end: all that are stored, and the committed ones.

        Messages before the start of a partition were deleted, as its settings say.
        """
        for content in (stored, visible):
            for at, values in content.items():
                for offset, value in values.items():
                    self._tell(at, offset, value)
        self._finish_acknowledged(stored, starts)
        self._finish_order(stored)
        if FOLDED[0] in stored:
            self.folds.finish(stored, self._sent)
        if LATER in self.lasting:
            self.topic_delay.finish(stored.get(LATER, ()))
        if PLAIN in self.lasting:
            self.views.finish(stored, visible)
        self._finish_transactions(visible)
        self._finish_shares(visible if self.shares.rules.is_committed else stored, letters)

    def _finish_acknowledged(self, stored: Content, starts: Mapping[TopicPartition, int]) -> None:
        for value, (at, offset) in self._acknowledged.items():
            kept = stored.get(at, {}).get(offset)
            if kept != value and offset >= starts.get(at, 0):
                self._fail(f"{value!r} was acknowledged at {name_of(at, offset)}, where {kept!r} is now")
        for at, told in self._told.items():
            for offset, value in told.items():
                if offset not in stored.get(at, {}) and offset >= starts.get(at, 0):
                    self._fail(f"{value!r} was read at {name_of(at, offset)} and is gone")

    def _finish_order(self, stored: Content) -> None:
        for at, values in stored.items():
            last: dict[tuple[str, TopicPartition], int] = {}
            for offset in sorted(values):
                sent = self._sent.get(values[offset])
                if sent is None or not sent.exactly_once:
                    continue
                before = last.get((sent.producer, sent.at), -1)
                if sent.number <= before:
                    what = "twice" if sent.number == before else "after what was sent later"
                    self._fail(f"{values[offset]!r} is at {name_of(at, offset)} {what}")
                last[sent.producer, sent.at] = sent.number

    def _finish_transactions(self, visible: Content) -> None:
        seen = Counter(value for values in visible.values() for value in values.values())
        for value, sent in self._sent.items():
            if seen[value] > 1 and (sent.exactly_once or sent.transaction is not None):
                self._fail(f"{value!r} is visible {seen[value]} times")
            if seen[value] and (problem := _why_not_visible(sent)):
                self._fail(f"{value!r} is visible though its transaction {problem}")
        for transaction in self._transactions:
            there = sum(1 for value in transaction.values if seen[value])
            allowed = (
                {len(transaction.values)}
                if transaction.outcome is TransactionOutcome.COMMITTED
                else {0, len(transaction.values)}
            )
            if there not in allowed:
                self._fail(f"{there} of {len(transaction.values)} messages of {transaction.name} are there")
        originals = Counter(value.partition(b"#")[0] for value in seen if b"#" in value)
        for original, count in originals.items():
            if count > 1:
                self._fail(f"{original!r} was transformed {count} times")

    def _finish_shares(self, content: Content, letters: Sequence[Letter]) -> None:
        """`content`: the messages that the share group should have got. `letters`: its dead letters."""
        shares = self.shares
        shares.may_be_invisible = lambda _place: False
        shares.finish(content)
        if shares.rules.has_dead_letters:
            fates = shares.fates(content)
            for problem in wrong_letters(letters, fates, content, SHARE_GROUP_NAME, shares.rules):
                self._fail(problem)


def _why_not_visible(sent: Sent) -> str | None:
    """Why a reader of committed messages must not see this one; None if it may."""
    if sent.transaction is None or sent.transaction.outcome in (
        TransactionOutcome.COMMITTED,
        TransactionOutcome.COMMIT_ASKED,
    ):
        return None
    return (
        "was aborted" if sent.transaction.outcome is TransactionOutcome.ABORTED else "nobody asked to commit"
    )
