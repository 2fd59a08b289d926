"""Where logs end, wherever they are led; and where a share group begins in a partition that is new to it."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.peers import Peers
from forebay.broker.fetch.offsets_by_time import OffsetsByTime
from forebay.broker.fetch.topic_delays import TopicDelays
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.config import ShareGroupSettings
from forebay.config.offset_reset import EARLIEST, LATEST
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import NO_LEADER
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
            partition = self._partitions.get(name, index)
            await self._delays.find(partition)
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


class StartOffsets:
    """`share.auto.offset.reset` applied to a partition that this broker leads."""

    def __init__(self, by_time: OffsetsByTime, delays: TopicDelays, time: BrokerTime) -> None:
        self._by_time = by_time
        self._delays = delays
        self._now_ms = time.now_ms

    async def resolve(self, partition: Partition, settings: ShareGroupSettings) -> int:
        """Raises KafkaError."""
        reset, log = settings.offset_reset, partition.log
        if reset.strategy == EARLIEST:
            return log.start_offset
        await self._delays.find(partition)
        if reset.strategy != LATEST:
            found = await self._by_time.first_from(log, reset.timestamp(self._now_ms()))
            if found is not None:
                return min(found[1], partition.readable_end(committed=False))
        return max(partition.readable_end(committed=False), log.start_offset)
