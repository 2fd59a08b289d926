"""Auditors of the share group: one checks its start offsets, and one finishes what is left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import GROUP, Client, Failed, Refused, check
from forebay.sim.actors.reading import shown_records
from forebay.sim.actors.shares.consumer import ShareConsumer
from forebay.sim.actors.shares.sessions import Said, Session
from forebay.sim.models.dead_letters import Letter
from forebay.sim.models.facts import name_of
from forebay.sim.models.messages import Model
from forebay.sim.models.share_records import ACCEPT
from forebay.sim.world.places import DEAD_LETTER_TOPIC
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)

_LOOK_S = 2.0
_DRAIN_S_MAX = 20.0
"""Less than the longest lock: records held by members that are gone must not wait for its end."""


async def look_at_starts(
    actor: Actor, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Have the model compare the start offsets of a share group; returns the number of unfinished records, or
    None where no start offset is shown."""
    shares, asked_at = actor.model.shares, actor.world.now
    floors = {at: shares.start(at) for at in partitions}
    topic = DescribeShareGroupOffsetsRequestTopic(
        topic_name=partitions[0][0], partitions=[at[1] for at in partitions]
    )
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[topic])
    response = await actor.client.ask_coordinator(
        GROUP, group, DescribeShareGroupOffsetsRequest(groups=[wanted]), DescribeShareGroupOffsetsResponse
    )
    check(response.groups[0].error_code)
    lags: dict[TopicPartition, int | None] = {}
    for found in response.groups[0].topics[0].partitions:
        check(found.error_code)
        at = (partitions[0][0], found.partition_index)
        if found.start_offset >= 0:
            shares.started(at, found.start_offset, floors[at], actor.model.offsets(at), asked_at)
        lags[at] = max(found.lag, 0) if found.start_offset >= 0 else None
    return lags


class ShareAuditor(Actor):
    """Checks the group's start offsets again and again."""

    def __init__(
        self, client: Client, model: Model, group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model)
        self._group = group
        self._partitions = partitions

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(_LOOK_S)
            try:
                await look_at_starts(self, self._group, self._partitions)
            except (Failed, Refused):
                self.client.forget_coordinator(GROUP, self._group)


class LastWorker(ShareConsumer):
    """At the end, accepts everything that is left; nobody else holds records any more. Then it reads the
    group's dead letters."""

    def __init__(
        self,
        client: Client,
        model: Model,
        group: str,
        partitions: Sequence[TopicPartition],
        letters: list[Letter],
    ) -> None:
        super().__init__(client, model, group, partitions)
        self._letters = letters

    async def act(self) -> None:
        deadline = self.world.now + _DRAIN_S_MAX
        while not await self._is_drained():
            await self.rest(0.1)
            if self.world.now > deadline:
                starts = [f"{name_of(at)} {self.shares.start(at)}" for at in self.partitions]
                self.world.fail(f"the share group has records left after {_DRAIN_S_MAX:.0f} s: {starts}")
                return
        await self.end_sessions()
        await self.leave()
        if self.shares.rules.has_dead_letters:
            await self._read_dead_letters()

    async def _is_drained(self) -> bool:
        try:
            await self.stay()
            await self.fetch_all(self.assigned)
            for session in list(self.sessions.values()):
                await self.say(session, self.decide(session))
            lags = await look_at_starts(self, self.group, self.partitions)
            return not any([await self._left(at, lag) for at, lag in lags.items()])
        except (Failed, Refused):
            self.client.forget_coordinator(GROUP, self.group)
            return False

    async def _left(self, at: TopicPartition, lag: int | None) -> int:
        """The number of unfinished records. No start offset is shown for a partition that never had one:
        nothing is left there."""
        return await self.client.latest(at) if lag is None else lag

    def decide(self, session: Session) -> list[Said]:
        return [Said(place, ACCEPT) for place in session.holds]

    async def _read_dead_letters(self) -> None:
        """Read the dead letters. Their topic exists if there ever was one."""
        found = await self.retry(partial(self.client.metadata, [DEAD_LETTER_TOPIC]))
        for partition in found.topics[0].partitions:
            at, offset, end = (DEAD_LETTER_TOPIC, partition.partition_index), 0, 1
            while offset < end:
                fetch = partial(self.client.fetch, at, offset, committed=False, max_wait_ms=10)
                data = await self.retry(fetch)
                records, offset = shown_records(data, offset, committed=False)
                end = data.high_watermark
                self._letters += map(Letter.read, records)
