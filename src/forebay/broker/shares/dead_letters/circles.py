"""Groups that read the topic which their dead letters go to: each letter would be delivered to them again.

A rejected letter would become another letter, for ever. So the setting is refused while members of the group
read the topic. The check may miss some: members may begin to read the topic later, and the group's
coordinator may be unavailable. So a mover does not write such letters either (`target_topic.py`): they wait,
and the log says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.coordinators.groups import Groups
from forebay.config import DEAD_LETTER_TOPIC
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.config_changes import Resource
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.resources import ResourceType
from forebay.core.groups.shard import GroupShard
from forebay.core.step import RequestInfo, Step, Ticket
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Response
from forebay.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

_TIMEOUT_S = 5.0
"""A group whose coordinator takes longer is set up without the check."""


def origins(image: ClusterImage, topic: str) -> Iterator[str]:
    """Yields the topics whose messages come into a topic: itself, and the sources of a materialized view."""
    yield topic
    while (fill := image.fills.get(topic)) is not None:
        source = image.topic_names.get(fill.source_id)
        if source is None:
            return
        yield source
        topic = source


class CircleCheck:
    def __init__(
        self, groups: Groups, peers: Peers, metadata: Metadata, time: BrokerTime, *, node_id: int
    ) -> None:
        self._groups = groups
        self._peers = peers
        self._metadata = metadata
        self._time = time
        self._node_id = node_id

    async def check(self, resource: Resource, settings: Iterable[tuple[str, str | None]]) -> None:
        """Raises KafkaError if a group is to have a dead-letter topic that its members read."""
        if resource.type != ResourceType.GROUP:
            return
        named = {value for name, value in settings if name == DEAD_LETTER_TOPIC and value}
        if not named:
            return
        for topic in await self._read_by(resource.name):
            if not named.isdisjoint(origins(self._metadata.image, topic)):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{DEAD_LETTER_TOPIC}: members of group {resource.name!r} read {topic!r}, and would be "
                    "given its dead letters again; name another topic",
                )

    async def _read_by(self, group_id: str) -> set[str]:
        """The topics that members of a share group have subscribed to; none if the group cannot be
        described."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                (group,) = (await self._describe(group_id)).groups
        except (KafkaError, TimeoutError):
            return set()
        return {topic for member in group.members for topic in member.subscribed_topic_names}

    async def _describe(self, group_id: str) -> ShareGroupDescribeResponse:
        """Raises KafkaError."""
        request = ShareGroupDescribeRequest(group_ids=[group_id])
        info = RequestInfo(api_version=request.MAX_VERSION)

        def describe(machine: GroupShard, ticket: Ticket) -> Step:
            return machine.share_group_describe(ticket, request, info, self._time.now())

        coordinator = self._groups.coordinator
        leader = coordinator.leader_of(group_id)
        response: Response
        if leader == self._node_id:
            response = await coordinator.ask(group_id, request, info, describe)
        else:
            response = await self._peers.ask(leader, request)
        assert isinstance(response, ShareGroupDescribeResponse)
        return response
