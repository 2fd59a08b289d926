"""The end offsets of partitions, led here or elsewhere."""

from __future__ import annotations

from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.fetch.topic_delays import TopicDelays
from forebay.broker.partition.leader_epoch_checks import check_end_known
from forebay.broker.partition.table import PartitionTable
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.errors import ErrorCode, KafkaError, known_code
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LATEST_TIMESTAMP = -1


class EndOffsets:
    """Where consumers' reading ends in partitions on any broker."""

    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionTable,
        peers: Peers,
        delays: TopicDelays,
        *,
        node_id: int,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers
        self._delays = delays
        self._node_id = node_id

    async def of(self, topic_id: bytes, index: int) -> int:
        """Raises KafkaError."""
        image = self._metadata.image
        name = image.topic_names.get(topic_id)
        state = None if name is None else image.partition(name, index)
        if name is None or state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist any more")
        if state.leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{index} has no leader now; try again")
        if state.leader == self._node_id:
            await self._delays.find(self._partitions.get_with_lease(name, index))
            partition = self._partitions.get_with_lease(name, index)  # another may lead it by now
            check_end_known(partition)
            return partition.readable_end(committed=False)
        return await self._ask(state.leader, name, index)

    async def _ask(self, leader: int, name: str, index: int) -> int:
        wanted = ListOffsetsPartition(partition_index=index, timestamp=_LATEST_TIMESTAMP)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
        response = await self._peers.ask(leader, request)
        assert isinstance(response, ListOffsetsResponse)
        ((found,),) = (topic.partitions for topic in response.topics)
        if found.error_code:
            raise KafkaError(known_code(found.error_code), f"{name}-{index} cannot be looked at now")
        return found.offset
