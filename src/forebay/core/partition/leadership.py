"""What the leader of a partition knows of its followers: how far each has come, and what is committed.

A message is *committed* when every in-sync replica has it; the high watermark is the offset below which all
are. The offset of a follower's fetch is the end of its log. Only fetches in this leader epoch count, so a
leader that was replaced while it was paused gets none and commits nothing.

Two rules make a change of the in-sync set safe, whenever the store learns of it. A replica that *joins*
counts for the high watermark from the moment it is proposed, because the store may already have it. A replica
that leaves counts until the store has the change, because until then it may be elected.

The in-sync set is what the store says (`update`); nothing here changes it. Who should leave it is decided
here (`lagging`), and who may join (`may_join`). While it is too small, nothing is committed at all
(`isr_changes.py` says why).

What is committed is in the log of every later leader, but that alone does not say what such a log lacks. Who
decides by what is *not* there has to wait until all have followed this leader (`is_followed`).

A refusal that clients take as final needs the followers too: a leader that was replaced and has not heard of
it does not know what its successor has taken since (`LeaderProof`).
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
    """How far one follower has come in this leader epoch."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    fetched_ms: int = 0
    leader_end_offset: int = 0
    """The leader's log end when the follower last fetched."""
    caught_up_ms: int = 0
    """The last time at which the follower had everything that the leader had."""
    broker_epoch: int = -1
    """The epoch of the broker that fetched: a broker that was restarted is not the one we have seen."""


class Leadership:
    """The leader's side of one partition for one leader epoch."""

    __slots__ = ("_since_ms", "followers", "isr", "joining", "leader_epoch", "me", "start_offset", "state")

    def __init__(self, *, me: int, state: PartitionState, end_offset: int, now_ms: int) -> None:
        self.me = me
        self.leader_epoch = state.leader_epoch
        self.start_offset = end_offset
        """Where this epoch begins: a follower that is not here yet may still hold another leader's end."""
        self.followers: dict[int, Follower] = {}
        self.joining: tuple[int, ...] = ()
        self._since_ms = now_ms
        self.isr: tuple[int, ...] = ()
        self.state = state
        self.update(state)

    def update(self, state: PartitionState) -> bool:
        """Take over the in-sync set of the store, in this epoch; returns whether a replica has left.

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
    def alone(self) -> bool:
        """Whether a message is committed without any other replica."""
        return not self.joining and self.only_copy

    @property
    def only_copy(self) -> bool:
        """Whether no other replica may lead: one that joins may not before the store has the change."""
        return self.isr == (self.me,)

    @property
    def electable(self) -> frozenset[int]:
        """The other replicas that may lead next, or may lead already without our knowing."""
        return frozenset((*self.isr, *self.joining)) - {self.me}

    @property
    def is_followed(self) -> bool:
        """Whether every other replica that may lead next has fetched in this epoch.

        Until it has, it may hold messages of the leader before that this one lacks, and commit them if it
        leads. A high watermark at the end of this log does not tell.
        """
        return all(
            node in self.followers and self.followers[node].end_offset != UNKNOWN_OFFSET
            for node in self.electable
        )

    def may_commit(self, min_insync_replicas: int) -> bool:
        """Whether enough replicas are in sync for messages to be committed."""
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
        """A follower asks for `offset`, so it has all before; the leader's own log ends at `end_offset`."""
        follower = self.followers.get(node)
        if follower is None:
            return  # it has been taken off the partition, and will hear of it
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
        """The offset below which every replica that counts has everything; -1 while one was not heard of."""
        lowest = end_offset
        for node in (*self.isr, *self.joining):
            if node != self.me:
                follower = self.followers.get(node)
                lowest = min(lowest, UNKNOWN_OFFSET if follower is None else follower.end_offset)
        return lowest

    def low_watermark(self, start_offset: int) -> int:
        """The offset below which every in-sync replica has deleted everything, the leader's own included."""
        lowest = start_offset
        for node in self.isr:
            if node != self.me:
                follower = self.followers.get(node)
                lowest = min(lowest, UNKNOWN_OFFSET if follower is None else follower.log_start_offset)
        return lowest

    # -- who should be in sync ---------------------------------------------------------------------------

    def may_join(self, node: int, high_watermark: int) -> bool:
        """Whether a follower that is not in sync has caught up enough to be."""
        return node not in self.isr and node not in self.joining and self.has_caught_up(node, high_watermark)

    def has_caught_up(self, node: int, high_watermark: int) -> bool:
        """Whether a follower has everything that is committed.

        One that joins may have lost it again: its broker was started anew, with an empty disk.
        """
        follower = self.followers.get(node)
        return follower is not None and follower.end_offset >= max(high_watermark, self.start_offset)

    def lagging(
        self, *, end_offset: int, now_ms: int, lag_ms_max: int, heard_ms: dict[int, int]
    ) -> tuple[int, ...]:
        """In-sync followers that have not caught up for this time.

        `heard_ms` is when each broker last fetched at all. One that has everything need not fetch a quiet
        partition by name to be in sync: it only has to be there.
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

    def isr_without(self, nodes: Iterable[int]) -> tuple[int, ...]:
        gone = set(nodes) - {self.me}
        return tuple(node for node in self.isr if node not in gone)


class FetchMark(NamedTuple):
    """One fetch of a follower. It sends the next one on a connection when the one before is answered."""

    connection: object
    number: int


class LeaderProof:
    """Whether this broker led at a moment: no replica that could have been elected before it had been.

    Each of them has to fetch, in this leader epoch, with a request that it sent after the moment: a leader
    follows nobody. A request that arrives after the moment may have been sent before it. So the first one
    that is seen proves nothing yet, and the next one on the same connection does: it was sent when the first
    had been answered. A replica that left the in-sync set in this epoch was not elected.
    """

    __slots__ = ("_missing",)

    def __init__(self, electable: Iterable[int]) -> None:
        self._missing: dict[int, FetchMark | None] = dict.fromkeys(electable)

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def fetched(self, node: int, fetch: FetchMark) -> bool:
        """A follower's fetch in this epoch is looked at; whether the proof needs another one of it."""
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
        """The in-sync set has changed, in this epoch: only these may lead next."""
        self._missing = {node: seen for node, seen in self._missing.items() if node in electable}
