"""The leader's view of its followers: the progress of each, and the high watermark.

A message is *committed* when every in-sync replica has it; the high watermark is the offset below which all
messages are committed. The offset of a follower's fetch is the end of its log. Only fetches in this leader
epoch count, so a leader that was replaced while it was paused gets none and commits nothing.

Two rules make a change of the in-sync set safe, whenever the store learns of it. A replica that *joins*
counts for the high watermark from the moment it is proposed, because the store may already have it. A replica
that leaves counts until the store has the change, because until then it may be elected.

The in-sync set is what the store says (`update`); nothing here changes it. Here is decided which replicas
should leave it (`lagging`), and which may join (`may_join`). While it is too small, nothing is committed at
all (`isr_changes.py` explains why).

Every committed message is in the log of every later leader, but such a log may have other messages as well. A
decision based on the *absence* of a message has to wait until all replicas have followed this leader
(`is_followed`).

A refusal that clients take as final needs the followers too: a leader that was replaced and does not know it
yet cannot know what its successor has accepted since (`LeaderProof`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.replicas.isr_changes import commits
from forebay.lazy import dataclass

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class Follower:
    """The progress of one follower in this leader epoch."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    fetched_ms: int = 0
    leader_end_offset: int = 0
    """The leader's log end when the follower last fetched."""
    caught_up_ms: int = 0
    """The last time at which the follower had everything the leader had."""
    broker_epoch: int = -1
    """The epoch of the broker that fetched: after a restart it is another one."""


class Leadership:
    """The leader's side of one partition for one leader epoch."""

    __slots__ = ("_since_ms", "followers", "isr", "joining", "leader_epoch", "me", "start_offset", "state")

    def __init__(self, *, me: int, state: PartitionState, end_offset: int, now_ms: int) -> None:
        self.me = me
        self.leader_epoch = state.leader_epoch
        self.start_offset = end_offset
        """The start of this epoch: a follower below it may still have the end of another leader's log."""
        self.followers: dict[int, Follower] = {}
        self.joining: tuple[int, ...] = ()
        self._since_ms = now_ms
        self.isr: tuple[int, ...] = ()
        self.state = state
        self.update(state)

    def update(self, state: PartitionState) -> bool:
        """Take over the in-sync set of the store, in this epoch; True if a replica has left.

        A replica that left the ISR rejoins when it fetches again, even if its broker was stopping.
        """
        gone = [node for node in self.isr if node not in state.isr]
        for node in gone:
            if node in self.followers:
                self.followers[node].end_offset = UNKNOWN_OFFSET
        self.isr = state.isr
        self.state = state
        self.joining = tuple(node for node in self.joining if node not in state.isr)
        self.followers = {
            node: self.followers.get(node) or Follower(caught_up_ms=self._since_ms)
            for node in state.replicas
            if node != self.me
        }
        return bool(gone)

    @property
    def has_others(self) -> bool:
        """True if the in-sync set can change: there are other replicas, or were."""
        return bool(self.followers or self.joining or self.state.eligible) or self.isr != (self.me,)

    @property
    def alone(self) -> bool:
        """True if a message is committed without any other replica."""
        return not self.joining and self.only_copy

    @property
    def only_copy(self) -> bool:
        """True if no other replica may lead: one that is joining may not before the store has the change."""
        return self.isr == (self.me,)

    @property
    def electable(self) -> frozenset[int]:
        """The other replicas that may lead next, or may lead already without this broker's knowledge."""
        return frozenset((*self.isr, *self.joining)) - {self.me}

    @property
    def is_followed(self) -> bool:
        """True if every other replica that may lead next has fetched in this epoch.

        Until then, it may have messages of the previous leader that this one lacks, and commit them if it
        leads. A high watermark at the end of this log does not rule that out.
        """
        return all(
            node in self.followers and self.followers[node].end_offset != UNKNOWN_OFFSET
            for node in self.electable
        )

    def may_commit(self, min_insync_replicas: int) -> bool:
        """True if enough replicas are in sync for messages to be committed."""
        return commits(self.state, min_insync_replicas)

    # -- what followers tell -----------------------------------------------------------------------------

    def fetched(
        self,
        node: int,
        offset: int,
        *,
        end_offset: int,
        now_ms: int,
        broker_epoch: int,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """Note a follower's fetch at `offset`: it has all before. The leader's log ends at `end_offset`."""
        follower = self.followers.get(node)
        if follower is None:
            return  # it was removed from the partition, and will be notified
        if offset >= end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.fetched_ms = now_ms
        follower.leader_end_offset = end_offset
        follower.broker_epoch = broker_epoch

    def high_watermark(self, end_offset: int) -> int:
        """The offset below which every replica that counts has everything; -1 until all have fetched."""
        lowest = end_offset
        for node in (*self.isr, *self.joining):
            if node != self.me:
                follower = self.followers.get(node)
                lowest = min(lowest, UNKNOWN_OFFSET if follower is None else follower.end_offset)
        return lowest

    def low_watermark(self, start_offset: int) -> int:
        """The offset below which every in-sync replica, including the leader, has deleted everything."""
        lowest = start_offset
        for node in self.isr:
            if node != self.me:
                follower = self.followers.get(node)
                lowest = min(lowest, UNKNOWN_OFFSET if follower is None else follower.log_start_offset)
        return lowest

    # -- who should be in sync ---------------------------------------------------------------------------

    def may_join(self, node: int, high_watermark: int) -> bool:
        """True if a follower that is not in sync has caught up enough to be."""
        return node not in self.isr and node not in self.joining and self.has_caught_up(node, high_watermark)

    def has_caught_up(self, node: int, high_watermark: int) -> bool:
        """True if a follower has all committed messages.

        A joining follower may have lost them again: its broker was restarted with an empty disk.
        """
        follower = self.followers.get(node)
        return follower is not None and follower.end_offset >= max(high_watermark, self.start_offset)

    def lagging(
        self, *, end_offset: int, now_ms: int, lag_ms_max: int, heard_ms: dict[int, int]
    ) -> tuple[int, ...]:
        """In-sync followers that have not caught up for this time.

        `heard_ms` is when each broker last fetched at all. A follower that has everything need not fetch a
        quiet partition by name to stay in sync: its broker only has to be alive.
        """
        late = []
        for node in (*self.isr, *self.joining):
            follower = self.followers.get(node)
            if follower is None:
                continue  # the leader itself
            if follower.end_offset >= end_offset:
                follower.caught_up_ms = max(follower.caught_up_ms, min(heard_ms.get(node, 0), now_ms))
            if now_ms - follower.caught_up_ms > lag_ms_max:
                late.append(node)
        return tuple(late)

    def stays(self, *, end_offset: int, now_ms: int, lag_ms_max: int, heard_ms: dict[int, int]) -> bool:
        """True if no replica can join or leave now, as is so nearly always. Quick to tell; `lagging` and
        `may_join` tell which ones can."""
        if self.joining:
            return False
        for node, follower in self.followers.items():
            if node not in self.isr:
                if follower.end_offset != UNKNOWN_OFFSET:
                    return False
            elif follower.end_offset < end_offset:
                return False
            else:
                heard = min(heard_ms.get(node, 0), now_ms)
                if heard > follower.caught_up_ms:
                    follower.caught_up_ms = heard
                if now_ms - follower.caught_up_ms > lag_ms_max:
                    return False
        return True

    def isr_without(self, nodes: Iterable[int]) -> tuple[int, ...]:
        gone = set(nodes) - {self.me}
        return tuple(node for node in self.isr if node not in gone)


class FetchMark(NamedTuple):
    """One fetch of a follower. It sends the next one on a connection when the previous one is answered."""

    connection: object
    number: int


class LeaderProof:
    """Proof that this broker led at a given moment: no replica that might be elected was elected before.

    Each of them has to fetch, in this leader epoch, with a request that it sent after the moment: a leader
    follows nobody. A request that arrives after the moment may have been sent before it. So the first one
    that is seen proves nothing yet, but the next one on the same connection does: it was sent after the first
    was answered. A replica that left the in-sync set in this epoch was not elected.
    """

    __slots__ = ("_missing",)

    def __init__(self, electable: Iterable[int]) -> None:
        self._missing: dict[int, FetchMark | None] = dict.fromkeys(electable)

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def fetched(self, node: int, fetch: FetchMark) -> bool:
        """Look at a follower's fetch in this epoch; True if the proof needs another one from it."""
        if node not in self._missing:
            return False
        seen = self._missing[node]
        if seen is None or seen.connection is not fetch.connection:
            self._missing[node] = fetch
            return True
        if seen.number == fetch.number:
            return True
        del self._missing[node]
        return False

    def keep(self, electable: Container[int]) -> None:
        """Note that the in-sync set has changed in this epoch: only these may lead next."""
        self._missing = {node: seen for node, seen in self._missing.items() if node in electable}
