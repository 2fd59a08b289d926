"""Members of consumer groups: they share partitions, read, commit, and come and go.

A member makes no mistakes. It reads on from the group's committed offset, commits only what it owns and only
larger offsets, and gives up at once what it is asked to give up. So if an offset goes back, a message is lost
or a partition has two owners, the broker is wrong. But a member may leave, or die without leaving. A mortal
one dies when all faults are over: then only the end of its session can free its partitions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import GROUP, Client, Failed, Refused, check
from forebay.sim.actors.consumers.readers import fetch_offset
from forebay.sim.actors.reading import messages
from forebay.sim.models.facts import name_of
from forebay.sim.models.groups import Claim
from forebay.sim.models.messages import Model
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

SESSION_MS = 2_000
REBALANCE_MS = 3_000

_COMMIT_VERSION = 9
_END_CHANCE = 0.06
_AWAY_S = 3.0
_PAUSE_S = 0.7
_NAP_S = 5.0
_LEAVE_ATTEMPTS_MAX = 3

REPLACED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors that a member may get without having made a mistake."""


class Member(Actor):
    """The behaviour of members of both protocols; subclasses define how they enter, stay and leave."""

    def __init__(
        self,
        client: Client,
        model: Model,
        group: str,
        partitions: Sequence[TopicPartition],
        *,
        mortal: bool = False,
    ) -> None:
        super().__init__(client, model)
        self.group = group
        self.partitions = list(partitions)
        self.member_id = ""
        self.epoch = -1
        """The member epoch, or the generation."""
        self.positions: dict[TopicPartition, int] = {}
        """The position in every partition that it owns."""
        self.nap_chance = 0.0
        """The chance of pausing before a commit, for longer than its session lasts."""
        self._mortal = mortal
        self._lives = 0
        self._alive_until = 0.0
        """Its session lasts at least until then, by the last answer that it got without faults."""
        self._committed: dict[TopicPartition, int] = {}

    # -- what the protocols differ in --------------------------------------------------------------------

    @abstractmethod
    async def stay(self) -> None:
        """Join the group, or send a heartbeat; take over the partitions that it gets."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group."""

    @abstractmethod
    def refused(self, code: ErrorCode) -> None:
        """Forget state that a refusal shows to be outdated."""

    # -- life --------------------------------------------------------------------------------------------

    async def act(self) -> None:
        while not self.stopping and not (self.calm and self._mortal):
            try:
                if self.chance.random() < 0.3:
                    await self._work()  # it may have been replaced since its last heartbeat
                await self._stay_alive()
                await self._work()
            except Failed:
                self.client.forget_coordinator(GROUP, self.group)
            except Refused as refusal:
                self._take(refusal)
            await self.rest(_PAUSE_S)
            if not self.calm and self.chance.random() < _END_CHANCE:
                await self._go_away()
        if self.stopping:
            await self._say_goodbye()
        self.forget()

    async def _stay_alive(self) -> None:
        alive_until = self.world.now + SESSION_MS / 1000 if self.calm else 0.0
        await self.stay()
        self._alive_until = alive_until

    def _take(self, refusal: Refused) -> None:
        if refusal.code not in REPLACED:
            self.world.fail(f"{self.name}, which makes no mistakes, was refused: {refusal}")
        if refusal.code is ErrorCode.UNKNOWN_MEMBER_ID and self.world.now < self._alive_until:
            left_s = self._alive_until - self.world.now
            self.world.fail(f"{self.name} was given up, and its session lasts for another {left_s:.3f} s")
        self.refused(refusal.code)

    async def _go_away(self) -> None:
        if self.chance.random() < 0.5:
            await self._say_goodbye()
        self.forget()
        await self.rest(_AWAY_S)

    async def _say_goodbye(self) -> None:
        for _ in range(_LEAVE_ATTEMPTS_MAX):
            try:
                return await self.leave()
            except Failed:
                self.client.forget_coordinator(GROUP, self.group)
                await self.rest(0.2)
            except Refused:
                return None
        return None

    def forget(self) -> None:
        """Start again as a new member."""
        self.model.groups.gone(self.group, self.member_id)
        self.member_id = ""
        self.epoch = -1
        self._alive_until = 0.0
        self._lives += 1
        self.own_nothing()

    def own_nothing(self) -> None:
        self.positions.clear()
        self._committed.clear()

    async def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Take over its partitions. Those that it had already keep their positions."""
        owned = sorted(partitions)
        claim = Claim(group=self.group, member_id=self.member_id, epoch=self.epoch, partitions=tuple(owned))
        self.model.groups.entered(self.group, self.member_id)
        self.model.groups.claim(claim)
        for at in [at for at in self.positions if at not in owned]:
            del self.positions[at]
        for at in owned:
            if at not in self.positions:
                offset = await fetch_offset(self, self.group, at)
                self.positions[at] = max(offset, 0)
                self._committed[at] = offset

    # -- work --------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        for at in list(self.positions):
            await self._read(at)
        moved = [at for at, offset in self.positions.items() if offset > self._committed.get(at, -1)]
        if moved:
            if self.nap_chance and not self.calm and self.chance.random() < self.nap_chance:
                await self.rest(_NAP_S)
            await self._commit(moved)

    async def _read(self, at: TopicPartition) -> None:
        offset = self.positions[at]
        try:
            found = await self.client.fetch(at, offset, committed=True, max_wait_ms=0)
        except Failed:
            return
        except Refused as refusal:
            if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE or at in self.model.lasting:
                self.world.fail(f"{self.name} at {name_of(at, offset)}, to which it has read: {refusal}")
            return
        shown, self.positions[at] = messages(found, offset, committed=True)
        for place, value in shown:
            self.model.read(self.name, at, place, value, committed=True)

    async def _commit(self, moved: Sequence[TopicPartition]) -> None:
        groups, member_id = self.model.groups, self.member_id
        offsets = {at: self.positions[at] for at in moved}
        successors = {at: groups.successor(self.group, at, member_id, self.epoch) for at in moved}
        for at, offset in offsets.items():
            groups.asked(self.group, at, offset)
        response = await self.client.ask_coordinator(
            GROUP, self.group, self._commit_request(offsets), OffsetCommitResponse, _COMMIT_VERSION
        )
        for topic in response.topics:
            for partition in topic.partitions:
                check(partition.error_code)
                at = topic.name, partition.partition_index
                groups.not_overtaken(self.group, at, member_id, successors[at])
                groups.committed(self.group, at, offsets[at])
                self._committed[at] = offsets[at]

    def _commit_request(self, offsets: dict[TopicPartition, int]) -> OffsetCommitRequest:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            partition = OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=None
            )
            topics.setdefault(topic, []).append(partition)
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
        )
