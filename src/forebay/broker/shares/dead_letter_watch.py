"""Finds dead letters that a previous leader has left, so that they do not wait for members.

A share partition is loaded when a member first fetches; until then, its dead letters would wait. So each
broker looks at intervals through the states of its share coordinators. If a state has records that are
ARCHIVING, the leader is asked to load the share partition. There are few: a dead letter is in that state for
milliseconds. The request has no effect on a share partition that is loaded already.
"""

from __future__ import annotations

import asyncio
import logging

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.broker.shares.table import ShareTable
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.state_transitions import ARCHIVING
from forebay.core.shares.sessions import SessionPartition
from forebay.errors import KafkaError
from forebay.wire.messages.resume_dead_letters import ResumeDeadLettersRequest

log = logging.getLogger(__name__)

_INTERVAL_S = 15.0
_STATES_PER_TURN = 100
_TIMEOUT_S = 10.0


class DeadLetterWatch:
    def __init__(
        self, states: ShareStates, shares: ShareTable, peers: Peers, metadata: Metadata, *, node_id: int
    ) -> None:
        self._states = states
        self._shares = shares
        self._peers = peers
        self._metadata = metadata
        self._node_id = node_id

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Have the share partitions loaded that have dead letters in the states kept here."""
        for shard in self._states.coordinator.ready_shards():
            for number, (key, state) in enumerate(list(shard.machine.states.items())):
                if number % _STATES_PER_TURN == 0:
                    await asyncio.sleep(0)
                if any(each.state == ARCHIVING for each in state.ranges):
                    await self._resume(key)

    async def _resume(self, key: ShareKey) -> None:
        image = self._metadata.image
        name = image.topic_names.get(key.topic_id)
        partition = None if name is None else image.partition(name, key.partition)
        if partition is None or partition.leader == NO_LEADER:
            return
        try:
            if partition.leader == self._node_id:
                self._shares.get(key.group_id, SessionPartition(key.topic_id, key.partition))
                return
            request = ResumeDeadLettersRequest(
                group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
            )
            version = request.MAX_VERSION
            await self._peers.ask(partition.leader, request, version=version, timeout_s=_TIMEOUT_S)
        except KafkaError as error:
            log.debug("a leader could not be told of dead letters", extra={"reason": error.message})
