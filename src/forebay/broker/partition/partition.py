"""One partition on this broker: its log, its role, the state of its producers, and its waiters.

The event loop owns it. An append is decided and given its offset at once, but written together with the other
appends of the same event (`write`). Only then may the high watermark move and responses be sent.

The broker leads the partition for a term, the leader epoch, or follows another that does (`lead`, `follow`);
the object lives through all terms. Without other in-sync replicas, what is written is committed. Otherwise
the high watermark follows the slowest in-sync replica (`advance`), and acks=all waits for it. While fewer
replicas are in sync than min.insync.replicas, the high watermark does not move.

Readers of committed messages get what lies below the last stable offset: nothing there belongs to a
transaction whose outcome is open. A partition without transactions does nothing for this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.broker.partition.append_refusals import as_stored, refusal, require_known_producers
from forebay.broker.partition.fold_state import FoldedInto, Hold, takes_nothing
from forebay.broker.partition.long_polls import Waiter
from forebay.broker.partition.pending_acks import PendingAcks, PendingDeletions, PendingRefusals
from forebay.broker.partition.topic_policy import append_policy, due_offset, log_config
from forebay.broker.telemetry.metrics import TopicTraffic
from forebay.config import TopicConfig
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.partition.batch_rules import AppendPolicy, patch_place, placed, restore, validate
from forebay.core.partition.fetch_session import FetchTarget
from forebay.core.partition.high_watermark_rules import commit_rules
from forebay.core.partition.leadership import Leadership
from forebay.core.partition.producers import producer_admission as admission
from forebay.core.partition.producers.producer_admission import APPEND, Repeats
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.core.partition.record_rules import UNEXAMINED, Examined, Unexamined
from forebay.core.partition.transaction_verification import Verifications
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.lazy import load
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.storage.log.log import Log
from forebay.wire.batch import NO_TIMESTAMP, EndTxnMarker

if TYPE_CHECKING:
    from forebay.broker.partition.remote_log import RemoteLog
    from forebay.broker.partition.waiting_messages import WaitingMessages

_REMOTE_LOG = "forebay.broker.partition.remote_log:RemoteLog"
_WAITING = "forebay.broker.partition.waiting_messages:WaitingMessages"


class Partition:
    __slots__ = (
        "_synced",
        "_syncs_alone",
        "_written",
        "acks",
        "closed",
        "closing",
        "commits_at_once",
        "commits_by_sync",
        "config",
        "delayed_messages",
        "deletions",
        "enough_replicas",
        "epochs",
        "fold",
        "follower_fetches",
        "high_watermark",
        "index",
        "is_filled",
        "is_leader",
        "leader_epoch",
        "leadership",
        "log",
        "may_commit",
        "on_marker",
        "policy",
        "producers",
        "refusals",
        "remote",
        "topic",
        "topic_delay",
        "topic_id",
        "traffic",
        "verifications",
        "waiters",
    )

    def __init__(
        self,
        *,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        epochs: LeaderEpochs,
        producers: ProducerTable,
        config: TopicConfig,
        policy: AppendPolicy,
        high_watermark: int = 0,
        syncs_alone: bool = False,
        has_notes: bool = False,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`syncs_alone`: where other replicas should have a message and none is in sync, the disk must.
        `has_notes`: its log may have delay notes, also if its topic takes no delays any more. `traffic`
        counts what clients write and read."""
        self.topic = topic
        self.traffic = traffic or TopicTraffic()
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = -1
        """The newest that this broker has heard of."""
        self.is_leader = False
        """True while this broker leads it, in `leader_epoch`."""
        self.leadership: Leadership | None = None
        """The state of the followers, while this broker leads."""
        self.log = log
        self.epochs = epochs
        log.files.before_sync = epochs.datasync
        log.on_start = epochs.forget_below
        epochs.forget_below(log.start_offset)
        self.producers = producers
        self.config = config
        self.policy = policy
        self.fold: FoldedInto | None = None
        """Set while it is closed to new messages, because they go to another partition."""
        self.closing: Hold | None = None
        """Set while it is about to be closed: what it still takes."""
        self.is_filled = False
        """True if brokers fill it from another topic: it takes no messages of clients."""
        self.topic_delay = due_offset(config)
        """How far it may be read, if its topic delays all messages."""
        self.delayed_messages: WaitingMessages | None = (
            load(_WAITING)(-1, log.end_offset) if has_notes or policy.delays is not None else None
        )
        """Messages that wait for their time, if its topic takes such messages or has taken them."""
        self.remote: RemoteLog | None = load(_REMOTE_LOG)() if config.remote_storage_enable else None
        """The part in an object store, if the topic's closed segments are copied there."""
        self.enough_replicas = self.may_commit = self.commits_at_once = self.commits_by_sync = False
        """The results of `commit_rules`, kept because they are read for every batch."""
        self.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
        """Everything below it is committed."""
        self._written, self._synced, self._syncs_alone = log.end_offset, 0, syncs_alone
        self.acks = PendingAcks()
        """Appends with acks=all that are not committed yet. The write cycle adds and completes them."""
        self.deletions = PendingDeletions()
        """Requests that wait until the in-sync replicas have deleted what the leader has."""
        self.refusals = PendingRefusals()
        """Refused batches that are answered once it is certain that this broker led when they came."""
        self.waiters: dict[Waiter, None] = {}
        """Consumers' fetches that wait for messages."""
        self.follower_fetches: dict[FetchTarget, None] = {}
        """Followers' fetches that have read to the end: notified when there is more."""
        self.verifications = Verifications()
        self.on_marker: Callable[[EndTxnMarker], None] | None = None
        """Called with every marker as soon as it is appended. Set by the coordinator whose state is here."""
        self.closed = False
        """Not served here: deleted, or its log is lent (`Assignment.lend`). Holders look it up again."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def configure(self, config: TopicConfig, decompress_max_bytes: int) -> None:
        if config.delay_ms != self.config.delay_ms:
            self.topic_delay = due_offset(config)
        self.config = config
        closed = self.is_filled or takes_nothing(self.fold, self.closing)
        self.policy = append_policy(config, decompress_max_bytes, self.index, closed=closed)
        if self.policy.delays is not None and self.delayed_messages is None:
            self.delayed_messages = load(_WAITING)(self.leader_epoch, self.log.end_offset)
        if config.remote_storage_enable and self.remote is None:
            self.remote = load(_REMOTE_LOG)()
        self.log.configure(log_config(config, decompress_max_bytes))
        self.count_replicas()

    # -- roles -----------------------------------------------------------------------------------------

    def lead(self, me: int, state: PartitionState, now_ms: int) -> None:
        """Begin to lead in a new epoch, or take over a new in-sync set in the same epoch."""
        if self.leadership is None or self.leader_epoch != state.leader_epoch:
            self._end_term(state)
            self.leadership = Leadership(me=me, state=state, end_offset=self.log.end_offset, now_ms=now_ms)
            self.epochs.assign(state.leader_epoch, self.log.end_offset)
            self.is_leader = True
            if self.delayed_messages is not None:
                self.delayed_messages.begin_term(state.leader_epoch, self.log.end_offset)
        elif self.leadership.update(state):
            self.notify_followers()  # a follower that left may have a fetch waiting, and may rejoin
        self.count_replicas()

    def follow(self, state: PartitionState) -> None:
        """Another broker leads, or none does."""
        if self.is_leader or self.leader_epoch != state.leader_epoch:
            self._end_term(state)
            self.epochs.forget_from(self.log.end_offset)
        self.count_replicas()

    def stand_still(self, state: PartitionState) -> None:
        """Nobody leads before it is known what all replicas hold: nothing is written here, or cut off."""
        if self.is_leader or self.leader_epoch != state.leader_epoch:
            self._end_term(state)
        self.count_replicas()

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch that was stored here; -1 if there was none, or it is unknown."""
        return self.epochs.last_between(self.log.start_offset, self.log.end_offset)

    def _end_term(self, state: PartitionState) -> None:
        self.is_leader, self.leadership = False, None
        self.leader_epoch = state.leader_epoch
        self._synced = 0
        if self.remote is not None:
            self.remote.forget()
        self.topic_delay = due_offset(self.config)  # what was looked at may be truncated
        self.verifications = Verifications()
        self._fail_waits()
        self.notify_followers()

    def close(self) -> None:
        """It is deleted here: clients that wait have to ask elsewhere whether it still exists."""
        self.closed, self.is_leader = True, False
        self._fail_waits()

    def _fail_waits(self) -> None:
        self.acks.fail(self, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.deletions.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.refusals:
            self.refusals.fail(self.not_leader())

    def count_replicas(self) -> None:
        """Find out anew whether enough replicas are in sync, and whether any other counts."""
        rules = commit_rules(self.leadership, self.config, syncs_alone=self._syncs_alone)
        self.enough_replicas, self.may_commit, self.commits_at_once, self.commits_by_sync = rules

    def advance(self) -> bool:
        """Move the high watermark to where the in-sync replicas have come; whether it moved."""
        if self.leadership is None or not self.may_commit:
            return False
        end_offset = min(self._synced, self._written) if self.commits_by_sync else self._written
        before = self.high_watermark
        self.high_watermark = max(before, self.leadership.high_watermark(end_offset))
        assert self.log.start_offset <= self.high_watermark <= self._written <= self.log.end_offset, self
        return self.high_watermark > before

    @property
    def is_followed(self) -> bool:
        """True if no replica that may lead next can hold messages of clients that this leader lacks."""
        return self.leadership is not None and self.leadership.is_followed

    @property
    def written_end_offset(self) -> int:
        """The end of what is written. Batches queued after it are not in the file yet."""
        return self._written

    def synced(self, leader_epoch: int, end_offset: int) -> None:
        """Everything below this offset was made durable in that term."""
        if self.is_leader and self.leader_epoch == leader_epoch:
            self._synced = max(self._synced, end_offset)

    def settle_deletions(self) -> None:
        """Answer requests whose deletions the in-sync replicas have now made."""
        if self.deletions and self.leadership is not None:
            self.deletions.complete(self.leadership.low_watermark(self.log.start_offset))

    def notify_followers(self, *, wake: bool = True) -> None:
        """Have the fetches of followers look at this partition again: at once, or when they next do."""
        for target in self.follower_fetches:
            target.changed(wake=wake)
        if wake:
            self.follower_fetches.clear()

    @property
    def start_offset(self) -> int:
        """Where the partition begins for its readers: in the local log, or before it in an object store."""
        remote = self.remote
        return self.log.start_offset if remote is None else remote.start_offset(self.log.start_offset)

    @property
    def known_start_offset(self) -> int | None:
        """Like `start_offset`; None until it is known what is in the object store."""
        return None if self.remote is not None and not self.remote.known else self.start_offset

    def end_of_epoch(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The last leader epoch up to this one and its end, which is `end_offset` for the latest; (-1, -1) if
        not known. Raises KafkaError until it is known what is in the object store."""
        remote = self.remote
        if remote is not None and 0 <= epoch < self.epochs.first:
            found = remote.end_of_epoch(epoch)
            if found is not None:
                return found
        return self.epochs.end_offset_for(epoch, end_offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and that is committed."""
        high_watermark = self.high_watermark
        if not self.producers.transactional:
            return high_watermark
        unstable = self.producers.transactions.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        # The beginning of a transaction may have been deleted since.
        return min(max(unstable, self.log.start_offset), high_watermark)

    def readable_end(self, *, committed: bool) -> int:
        """Where what a consumer may read ends."""
        end = self.last_stable_offset if committed else self.high_watermark
        delay = self.topic_delay
        return end if delay is None else max(min(end, delay.offset), self.log.start_offset)

    def append(
        self,
        records: memoryview | None,
        now_ms: int,
        *,
        guard: object | None = None,
        examined: Examined | None = None,
    ) -> tuple[int, int] | Unexamined:
        """Queue a client's batch for writing; its base offset and the append time (or -1).

        UNEXAMINED if the batch must be examined in a thread first; then nothing has changed. `examined`: what
        came of that. A batch that begins a transaction needs the guard of its verification. Raises KafkaError
        with the code to answer with.
        """
        if not self.is_leader:
            raise self.not_leader()
        log, policy = self.log, self.policy
        header = validate(records, policy, now_ms)
        assert records is not None
        producer_id = header.producer_id
        known = producer_id >= 0
        if known:
            verified = None if guard is None else self.verifications.verified_from(producer_id, guard)
            decision = admission.admit(self.producers.find(producer_id), header, verified)
            if decision is not APPEND:
                require_known_producers(log)
                if isinstance(decision, Repeats):
                    self.producers.heard(producer_id)
                    appended_ms = decision.timestamp if policy.log_append_time else NO_TIMESTAMP
                    return decision.base_offset, appended_ms
                raise refusal(header, decision, asked=guard is not None, offline=log.offline)
        received, sent, delayed = records, header, None
        if not policy.stores_unread:
            stored = as_stored(records, header, policy, now_ms, examined)
            if stored is UNEXAMINED:
                return UNEXAMINED
            records, header, delayed = stored
        base_offset = log.end_offset
        try:
            if delayed is None:
                patch_place(records, header, base_offset, self.leader_epoch)
                log.append_at(records, base_offset, base_offset + header[6], header[8])
            else:
                assert self.delayed_messages is not None
                appended = self.delayed_messages.append_delayed(log, records, header, delayed)
                if appended is UNEXAMINED:
                    return UNEXAMINED
                base_offset = appended
        except StorageError:
            restore(received, sent)
            raise
        if known:
            accepted = placed(header, base_offset, self.leader_epoch)
            if header is not sent:
                accepted = accepted._replace(crc=sent.crc)  # a repeat has what was sent, not what is stored
            self.producers.accept(accepted)
        return base_offset, now_ms if policy.log_append_time else NO_TIMESTAMP

    def write(self) -> int:
        """Write what was queued, in one call; how many offsets it is.

        Raises StorageError when the log went offline over it. The high watermark is moved by `advance`, or
        here if there is no other in-sync replica.
        """
        before = self._written
        try:
            self.log.write_pending()
            self.producers.written()
        except StorageError:
            self.producers.truncate(self.log.end_offset)
            if self.delayed_messages is not None:
                self.delayed_messages.begin_term(self.leader_epoch, self.log.end_offset)
            raise
        finally:
            self._written = self.log.end_offset
            if self.commits_at_once:
                self.high_watermark = self._written
        return self._written - before

    def truncated(self) -> None:
        """The log was cut: nothing beyond its end is written or committed."""
        self._written = self.log.end_offset
        self.high_watermark = min(max(self.high_watermark, self.log.start_offset), self.log.end_offset)

    def not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self}; ask for the metadata again"
        )
