"""Administrators of a share group: one resets or deletes it, one moves leadership of its partitions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.administrators import elect, reassign
from forebay.sim.actors.client import GROUP, Client, Failed, Refused, check
from forebay.sim.models.messages import Model
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from forebay.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

_RESET_PAUSE_S = 5.0
_RESET_S_MAX = 8.0
_AGAIN_S = 0.3
_DELETE_CHANCE = 0.5
_NOT_NOW = frozenset(
    {
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Nothing was done. NOT_COORDINATOR leaves that open: a coordinator that is replaced while its records are
being replicated answers with it, too."""

_DEAF_S = (0.5, 4.0)
_HEARD_S = 0.05
"""After this, brokers mostly know of a change."""


class ShareResetter(Actor):
    """Has the members leave the group, and sets its offsets, or deletes it."""

    def __init__(
        self, client: Client, model: Model, group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model)
        self._group = group
        self._partitions = partitions

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(_RESET_PAUSE_S)
            if not self.calm:
                self.model.shares.is_vacated = True
                await self._reset()
                self.model.shares.is_vacated = False

    async def _reset(self) -> None:
        """Try until it is done, or refused too often. What may have been done is repeated until it surely
        is."""
        shares = self.model.shares
        starts = None if self.chance.random() < _DELETE_CHANCE else self._starts()
        deadline = self.world.now + _RESET_S_MAX
        while True:
            asked_at = self.world.now
            for at in self._partitions:
                shares.resetting(at)
            try:
                await (self._delete() if starts is None else self._alter(starts))
                break
            except Failed:
                deadline = math.inf
            except Refused as refusal:
                if refusal.code not in _NOT_NOW:
                    self.world.fail(f"the share group cannot be reset: {refusal}")
                for at in self._partitions:
                    shares.not_reset(at)
                if self.world.now > deadline or self._is_gone(refusal, starts):
                    return
            self.client.forget_coordinator(GROUP, self._group)
            await asyncio.sleep(_AGAIN_S)
        self.world.note("admin", f"{self._group} was reset to {starts}")
        self.model.topics.changes_count += 1
        for at in self._partitions:
            shares.reset(at, None if starts is None else starts[at], asked_at, self.world.now)

    def _is_gone(self, refusal: Refused, starts: object) -> bool:
        """True if it was to be deleted, and an earlier attempt has done it."""
        return starts is None and refusal.code is ErrorCode.GROUP_ID_NOT_FOUND

    def _starts(self) -> dict[TopicPartition, int]:
        return {at: self.chance.choice([0, *self.model.offsets(at)]) for at in self._partitions}

    async def _alter(self, starts: dict[TopicPartition, int]) -> None:
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=at[1], start_offset=offset)
            for at, offset in starts.items()
        ]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=self._partitions[0][0], partitions=partitions)
        response = await self.client.ask_coordinator(
            GROUP,
            self._group,
            AlterShareGroupOffsetsRequest(group_id=self._group, topics=[topic]),
            AlterShareGroupOffsetsResponse,
        )
        _check(response.error_code)
        codes = {each.error_code for topic in response.responses for each in topic.partitions}
        if codes != {ErrorCode.NONE}:
            raise Failed(f"not every partition was reset: {codes}")

    async def _delete(self) -> None:
        response = await self.client.ask_coordinator(
            GROUP, self._group, DeleteGroupsRequest(groups_names=[self._group]), DeleteGroupsResponse
        )
        _check(response.results[0].error_code)


def _check(code: int) -> None:
    """An error that means that nothing was done is a refusal."""
    if code in _NOT_NOW:
        raise Refused(code)
    check(code)


class Deposer(Actor):
    """Makes others lead, while the old leader is not notified: it continues to serve its clients."""

    def __init__(
        self,
        client: Client,
        model: Model,
        partitions: Sequence[TopicPartition],
        deafen: Callable[[str, float], None],
        pause_s: float,
    ) -> None:
        """`deafen` keeps news of the cluster from a host for some seconds."""
        super().__init__(client, model)
        self._partitions = partitions
        self._deafen = deafen
        self._pause_s = pause_s

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(self._pause_s)
            if not self.calm:
                try:
                    await self._depose(self.chance.choice(self._partitions))
                except Failed:
                    continue

    async def _depose(self, at: TopicPartition) -> None:
        found = await self.client.metadata([at[0]])
        hosts = {broker.node_id: broker.host for broker in found.brokers}
        state = next((each for each in found.topics[0].partitions if each.partition_index == at[1]), None)
        if state is None:
            return  # it was folded, and is gone
        heirs = [node for node in state.isr_nodes if node != state.leader_id and node in hosts]
        if state.leader_id not in hosts or not heirs:
            return
        heir = self.chance.choice(heirs)
        await reassign(self, at, [heir, *(node for node in state.replica_nodes if node != heir)])
        await asyncio.sleep(_HEARD_S)
        self._deafen(hosts[state.leader_id], self.chance.uniform(*_DEAF_S))
        await elect(self, at, unclean=False)
