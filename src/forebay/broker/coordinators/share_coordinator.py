"""The share coordinator on this broker: machines on __share_group_state, and how all brokers reach them.

The state of a share partition (the deliveries of one share group from one partition) is kept by the
coordinator that the group hashes to, on this broker or on another. The group coordinator and the leader of
the partition ask it the same way. One machine coordinates all share partitions of a group, so the
acknowledgements of a request are one batch in one log, for any number of partitions. (Kafka hashes the topic
and the partition too.)
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, TypeAlias

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.coordinators.host import CoordinatorHost
from forebay.broker.coordinators.loaded_shard import Ticket
from forebay.broker.coordinators.runtime import Coordinator
from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.long_polls import release
from forebay.core.cluster.image import ClusterImage
from forebay.core.shares.coordinator.answers import failure
from forebay.core.shares.coordinator.shard import DeleteStateRecords, ShareCoordinatorShard, Topics
from forebay.core.step import Effect, Now, RequestInfo, Step
from forebay.errors import KafkaError, known_code
from forebay.wire.fields import Request
from forebay.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from forebay.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from forebay.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from forebay.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from forebay.wire.messages.write_share_group_state import WriteShareGroupStateRequest

SHARE_STATE_TOPIC = "__share_group_state"
_TIMEOUT_S = 5.0

Operation: TypeAlias = Callable[[ShareCoordinatorShard, Ticket, Any, RequestInfo, Now], Step]

OPERATIONS: dict[type[Request], Operation] = {
    InitializeShareGroupStateRequest: ShareCoordinatorShard.initialize,
    ReadShareGroupStateRequest: ShareCoordinatorShard.read,
    WriteShareGroupStateRequest: ShareCoordinatorShard.write,
    DeleteShareGroupStateRequest: ShareCoordinatorShard.delete,
    ReadShareGroupStateSummaryRequest: ShareCoordinatorShard.read_summary,
}


class ShareStates:
    def __init__(self, host: CoordinatorHost, settings: LiveConfig, peers: Peers) -> None:
        self._node_id = host.node_id
        self._host = host
        self._time = host.time
        self._peers = peers
        config = settings.current.share_coordinator
        self._topics = _topics_view(host.metadata.image)
        self._deleted: Container[bytes] = host.metadata.image.deleted
        self.coordinator = Coordinator(
            host,
            topic=SHARE_STATE_TOPIC,
            partitions=config.state_partitions,
            configs={
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "segment.bytes": str(config.state_segment_bytes),
                "compression.type": "producer",
            },
            make=lambda partition: ShareCoordinatorShard(
                config, topics=self._topics, deleted=self._deleted, partition=partition.index
            ),
            failure=failure,
            perform=self._perform,
            catch_up=self._show_topics,
        )

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        self.coordinator.follow()
        if after.topics is before.topics:
            return
        topics, self._deleted = _topics_view(after), after.deleted
        if topics != self._topics:
            self._topics = topics
            for shard in self.coordinator.ready_shards():
                self.coordinator.run(shard, "seeing changed topics", self._show_topics)

    async def answer(self, request: Any, info: RequestInfo) -> Any:
        """The response to a broker's request about share partitions that are coordinated here."""
        operation = OPERATIONS[type(request)]

        def decide(machine: ShareCoordinatorShard, ticket: Ticket) -> Step:
            return operation(machine, ticket, request, info, self._time.now())

        return await self.coordinator.ask(request.group_id, request, info, decide)

    async def ask_coordinator(self, request: Any) -> Any:
        """The response of the coordinator of a group's share partitions, on this broker or another.

        Raises KafkaError. NETWORK_EXCEPTION: it is unknown if the request was carried out.
        """
        await self.coordinator.ensure_topic()
        leader = self.coordinator.leader_of(request.group_id)
        if leader == self._node_id:
            return await self.answer(request, RequestInfo(api_version=request.MAX_VERSION))
        return await self._peers.ask(leader, request, version=request.MAX_VERSION, timeout_s=_TIMEOUT_S)

    async def ask(self, request: Any) -> Any:
        """The result of a request about one share partition. Raises KafkaError with its code."""
        response = await self.ask_coordinator(request)
        ((result,),) = ([*topic.partitions] for topic in response.results)
        if result.error_code:
            raise KafkaError(known_code(result.error_code), result.error_message or "the state was refused")
        return result

    def _show_topics(self, machine: ShareCoordinatorShard) -> Step:
        return machine.topics_changed(self._topics, self._time.now(), deleted=self._deleted)

    def _perform(self, effect: Effect) -> None:
        """Delete the records of a partition before the oldest needed one; its followers do the same."""
        assert isinstance(effect, DeleteStateRecords)
        try:
            partition = self._host.partitions.get(SHARE_STATE_TOPIC, effect.partition)
        except KafkaError:
            return  # another broker leads it, and deletes in its own time
        partition.log.advance_start(min(effect.before_offset, partition.high_watermark))
        release(partition)
        partition.notify_followers()
        self._host.write_cycle.finish_soon()


def _topics_view(image: ClusterImage) -> Topics:
    return {topic.topic_id: len(topic.partitions) for topic in image.topics.values()}
