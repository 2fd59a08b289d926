"""Administrators of the workload: they move partitions, make topics and delete them while others work."""

from __future__ import annotations

from forebay.errors import ErrorCode
from forebay.sim.actors import Actor
from forebay.sim.client import Client, Failed, TopicPartition
from forebay.sim.model import Model
from forebay.sim.world import World
from forebay.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from forebay.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

_REASSIGN_VERSION = 0
_REPLICAS_MIN = 2


class Mover(Actor):
    """Moves partitions to other sets of brokers, and sometimes thinks better of it."""

    def __init__(
        self, world: World, client: Client, model: Model, partitions: list[TopicPartition], brokers: int
    ) -> None:
        super().__init__(world, client, model)
        self._partitions = partitions
        self._brokers = brokers

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(4.0)
            at = self.chance.choice(self._partitions)
            try:
                await self._move(at, None if self.chance.random() < 0.2 else self._target())
            except Failed:
                continue  # whether it was begun does not matter: both must end well

    def _target(self) -> list[int]:
        nodes = list(range(1, self._brokers + 1))
        return self.chance.sample(nodes, self.chance.randint(_REPLICAS_MIN, min(3, self._brokers)))

    async def _move(self, at: TopicPartition, target: list[int] | None) -> None:
        """Begin a move, or give up the one under way."""
        partition = ReassignablePartition(partition_index=at[1], replicas=target)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5000, topics=[ReassignableTopic(name=at[0], partitions=[partition])]
        )
        response = await self.client.ask_any(request, AlterPartitionReassignmentsResponse, _REASSIGN_VERSION)
        code = ErrorCode(response.responses[0].partitions[0].error_code)
        self.world.note("admin", f"{at[0]}-{at[1]} to {target}: {code.name}")


class TopicKeeper(Actor):
    """Makes topics, gives them more partitions, and deletes them again."""

    async def act(self) -> None:
        number = 0
        while not self.stopping:
            number += 1
            await self.rest(3.0)
            try:
                await self._live_through(f"passing-{number}")
            except Failed:
                continue

    async def _live_through(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=-1)
        await self.client.ask_any(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        await self.rest(1.0)
        more = CreatePartitionsTopic(name=name, count=2, assignments=None)
        await self.client.ask_any(
            CreatePartitionsRequest(topics=[more], timeout_ms=5000), CreatePartitionsResponse
        )
        await self.rest(1.0)
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        await self.client.ask_any(gone, DeleteTopicsResponse)
