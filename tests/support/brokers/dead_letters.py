"""A share group on a local cluster, whose records are rejected; and its dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from forebay.broker.shares.live_share import LiveShare
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.acquired_ranges import Demand, LogRead
from forebay.core.shares.sessions import SessionPartition
from forebay.errors import ErrorCode
from forebay.wire.batch import records, split
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from forebay.wire.records import Record
from support.brokers.local_cluster import LocalCluster, eventually, retried
from support.clients.wire_client import batch, create_topic, fetch, only_partition, produce
from support.machines.share_coordinator import initialize_request

GROUP, SOURCE, DEAD = "g", "jobs", "dead"
TOPIC, GROUP_TYPE = 2, 32
RELEASE, REJECT = 2, 3
MESSAGES = 6

DEAD_LETTERS = {
    "errors.deadletterqueue.topic.name": DEAD,
    "errors.deadletterqueue.copy.record.enable": "true",
    "share.delivery.count.limit": "2",
}


class ShareStory:
    """One share partition with a few messages, acquired and acknowledged on the broker that leads it."""

    def __init__(self, cluster: LocalCluster, group: str = GROUP) -> None:
        self.cluster = cluster
        self.group = group
        self.topic_id = b""
        self._batches: list[tuple[int, int]] = []
        """First and last offset of each that was produced."""

    async def begin(self, *batches: Sequence[bytes], **settings: str) -> None:
        """A few messages in one batch, unless others are given."""
        await self.configure(GROUP_TYPE, self.group, {**DEAD_LETTERS, **settings})
        self.topic_id = await self.create(SOURCE)
        for values in batches or [[f"v{n}".encode() for n in range(MESSAGES)]]:
            await self.send(values)
        key = ShareKey(self.group, self.topic_id, 0)
        states = self.cluster[self.cluster.leader(SOURCE)].share_states

        async def initialize() -> tuple[None, int]:
            await states.ask(initialize_request(key, 1, 0))
            return None, ErrorCode.NONE

        await retried(initialize)

    async def send(self, values: Sequence[bytes]) -> None:
        """One batch, which may have the offsets of some that are lost."""
        leader = self.cluster.leader(SOURCE)
        answer = await self.cluster.ask(leader, produce(SOURCE, batch(*values), acks=-1), 12)
        result = only_partition(answer)
        assert result.error_code == ErrorCode.NONE
        self._batches = [each for each in self._batches if each[1] < result.base_offset]
        self._batches.append((result.base_offset, result.base_offset + len(values) - 1))

    async def create(self, name: str) -> bytes:
        any_node = self.cluster.nodes[0]
        (made,) = (await self.cluster.ask(any_node, create_topic(name), 7)).topics
        assert made.error_code == ErrorCode.NONE, made.error_message
        await self.cluster.knows(name)
        await self.cluster.in_sync(name)
        topic_id: bytes = made.topic_id
        return topic_id

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
        (gone,) = (await self.cluster.ask(self.cluster.nodes[0], request, 6)).responses
        assert gone.error_code == ErrorCode.NONE, gone.error_message
        await eventually(lambda: name not in self.cluster[self.cluster.nodes[0]].image.topics)

    async def configure(self, kind: int, name: str, settings: dict[str, str]) -> None:
        configs = [AlterableConfig(name=k, config_operation=0, value=v) for k, v in settings.items()]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (response,) = (await self.cluster.ask(self.cluster.nodes[0], request, 1)).responses
        assert response.error_code == ErrorCode.NONE, response.error_message

    async def share(self) -> LiveShare:
        """The share partition on the broker that leads it, loaded, and kept by a member's session."""
        leader = self.cluster.leader(SOURCE)
        node = self.cluster[leader]
        wanted = FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=0)])
        request = ShareFetchRequest(
            group_id=self.group, member_id=str(uuid4()), share_session_epoch=0, topics=[wanted]
        )
        await self.cluster.ask(leader, request, 1)

        def loaded() -> LiveShare | None:
            share = node.shares.shares.get(self.group, SessionPartition(self.topic_id, 0))
            return share if share.machine is not None else None

        share: LiveShare = await eventually(loaded)
        return share

    async def acknowledge(self, kind: int, *offsets: int) -> None:
        """Let a member acquire everything, and say this about some of it."""
        share = await self.share()
        assert share.machine is not None
        now_ms = self.cluster[self.cluster.leader(SOURCE)].time.uptime_ms()
        read = LogRead(0, self._batches[-1][1], self._batches)
        demand = Demand(records_max=2000, batch_size=2000)
        acquired = share.machine.acquire("m", read, demand, now_ms=now_ms)
        share.machine.sent(acquired.hold, acquired.ranges, now_ms=now_ms)
        said = [
            AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
            for offset in offsets
        ]
        error, _ = share.machine.acknowledge("m", said, is_renew_request=False, now_ms=now_ms)
        assert error == ErrorCode.NONE
        share.changed()

    async def dead_letters(self, count: int) -> list[Record]:
        """What is in the dead-letter topic once nothing waits any more, and the journal is at rest."""
        share = await self.share()
        await eventually(lambda: not share.dead_letters_waiting and self.is_at_rest)
        found = await self.read_dead()
        assert len(found) == count, [dict(each.headers) for each in found]
        return found

    async def read_dead(self) -> list[Record]:
        node = self.cluster.leader(DEAD)
        answer = only_partition(await self.cluster.ask(node, fetch(DEAD), 12))
        buffer = memoryview(answer.records or b"")
        return [
            record
            for position, header in split(buffer)
            for record in records(buffer[position : position + header.size])
        ]

    @property
    def is_at_rest(self) -> bool:
        return not any(
            mover.pending
            for node in self.cluster.nodes
            for shard in self.cluster[node].move_journal.coordinator.ready_shards()
            for mover in shard.machine.movers.values()
        )


def offsets_of(letters: Sequence[Record]) -> list[int]:
    return sorted(int(dict(each.headers)["__dlq.errors.offset"] or b"") for each in letters)
