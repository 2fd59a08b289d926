"""Has lost states of share partitions created again: the group has initialized one, and the leader finds
none.

That happens if acknowledged records of __share_group_state are lost, for example by an unclean election. Only
the coordinator of the group can initialize the state again, because it assigns the epochs. It notices a
missing state when it is asked for the offsets of the group, so the leader asks for them.
"""

from __future__ import annotations

import asyncio
import logging

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.coordinators.groups import Groups
from forebay.coordination.metadata import Metadata
from forebay.core.groups.shard import GroupShard
from forebay.core.shares.coordinator.key import coordinator_key
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.step import RequestInfo, Step, Ticket
from forebay.errors import KafkaError
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)

log = logging.getLogger(__name__)

_PAUSE_S = 1.0
"""The pause between two reports: members retry at once, while the state is still missing."""


class MissingStates:
    def __init__(
        self,
        groups: Groups,
        peers: Peers,
        metadata: Metadata,
        background: Background,
        time: BrokerTime,
        *,
        node_id: int,
    ) -> None:
        self._groups = groups
        self._peers = peers
        self._metadata = metadata
        self._background = background
        self._time = time
        self._node_id = node_id
        self._reported: set[ShareKey] = set()

    def report(self, key: ShareKey) -> None:
        """Have the coordinator of the group notice that a state is missing."""
        name = self._metadata.image.topic_names.get(key.topic_id)
        if name is not None and key not in self._reported:
            self._reported.add(key)
            doing = f"reporting that there is no state of {coordinator_key(key)}"
            self._background.spawn(self._report(key, name), doing)

    async def _report(self, key: ShareKey, topic: str) -> None:
        try:
            await self._ask(key, topic)
        except KafkaError as error:
            log.debug("a group could not be told of a missing state", extra={"reason": error.message})
        asyncio.get_running_loop().call_later(_PAUSE_S, self._reported.discard, key)

    async def _ask(self, key: ShareKey, topic: str) -> None:
        """Raises KafkaError."""
        asked = DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[key.partition])
        group = DescribeShareGroupOffsetsRequestGroup(group_id=key.group_id, topics=[asked])
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        info = RequestInfo(api_version=request.MAX_VERSION)

        def describe(machine: GroupShard, ticket: Ticket) -> Step:
            return machine.describe_share_group_offsets(ticket, request, info, self._time.now())

        coordinator = self._groups.coordinator
        leader = coordinator.leader_of(key.group_id)
        if leader == self._node_id:
            await coordinator.ask(key.group_id, request, info, describe)
        else:
            await self._peers.ask(leader, request)
