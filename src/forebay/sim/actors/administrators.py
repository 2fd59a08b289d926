"""Administrators of the workload: they move partitions and leaders, make topics and delete them,
and change settings, while others work.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client, Failed, Refused, check
from forebay.sim.models.messages import Model
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
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from forebay.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE = 2

_HIGH_WATERMARK = -1
_SET = 0
_PREFERRED = 0
_UNCLEAN = 1
_REASSIGN_VERSION = 0
_REPLICAS_MIN = 2
_MOVING_PAUSE_S = 3.0
_FAVOURITE_CHANCE = 0.4


async def reassign(actor: Actor, at: TopicPartition, target: list[int] | None) -> None:
    """Begin a reassignment, or cancel the one under way."""
    partition = ReassignablePartition(partition_index=at[1], replicas=target)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=5000, topics=[ReassignableTopic(name=at[0], partitions=[partition])]
    )
    response = await actor.client.ask_any(request, AlterPartitionReassignmentsResponse, _REASSIGN_VERSION)
    code = ErrorCode(response.responses[0].partitions[0].error_code)
    actor.world.note("admin", f"{at[0]}-{at[1]} to {target}: {code.name}")


async def elect(actor: Actor, at: TopicPartition, *, unclean: bool) -> None:
    """Have the preferred replica lead; or with `unclean`, any that is left."""
    kind = _UNCLEAN if unclean else _PREFERRED
    places = [TopicPartitions(topic=at[0], partitions=[at[1]])]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=places, timeout_ms=5000)
    response = await actor.client.ask_any(request, ElectLeadersResponse)
    check(response.error_code)
    code = ErrorCode(response.replica_election_results[0].partition_result[0].error_code)
    actor.world.note("admin", f"elect for {at[0]}-{at[1]}, kind {kind}: {code.name}")
    if code is ErrorCode.NONE:
        actor.model.topics.changes_count += 1


async def delete_before(actor: Actor, leader: Address, at: TopicPartition, offset: int) -> None:
    """Delete the messages of a partition before an offset."""
    topic, index = at
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=3000
    )
    response = await actor.client.ask(leader, request, DeleteRecordsResponse)
    code = ErrorCode(response.topics[0].partitions[0].error_code)
    actor.world.note("admin", f"delete {topic}-{index} before {offset}: {code.name}")
    if code is ErrorCode.NONE:
        actor.model.topics.changes_count += 1


class Mover(Actor):
    """Moves partitions to other sets of brokers, and sometimes cancels the move.

    It moves one partition more often than the others, so that a broker gets back one that it had before.
    """

    def __init__(
        self,
        client: Client,
        model: Model,
        partitions: Sequence[TopicPartition],
        favourite: TopicPartition,
        brokers: int,
    ) -> None:
        super().__init__(client, model)
        self._partitions = partitions
        self._favourite = favourite
        self._brokers = brokers

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(_MOVING_PAUSE_S)
            is_favourite = self.chance.random() < _FAVOURITE_CHANCE
            at = self._favourite if is_favourite else self.chance.choice(self._partitions)
            try:
                await reassign(self, at, None if self.chance.random() < 0.2 else self._target())
            except Failed:
                continue  # it does not matter if it was begun: both must end well

    def _target(self) -> list[int]:
        nodes = list(range(1, self._brokers + 1))
        return self.chance.sample(nodes, self.chance.randint(_REPLICAS_MIN, min(3, self._brokers)))


class TopicKeeper(Actor):
    """Makes topics, gives them more partitions, and deletes them again."""

    async def act(self) -> None:
        number = 0
        while not self.stopping:
            number += 1
            await self.rest(5.0)
            try:
                await self._live_through(f"passing-{number}")
            except (Failed, Refused):
                continue

    async def _live_through(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=-1)
        made = await self.client.ask_any(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        check(made.topics[0].error_code)
        self.model.topics.made(name, 1)
        await self.rest(1.0)
        more = CreatePartitionsTopic(name=name, count=2, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=5000)
        widened = await self.client.ask_any(request, CreatePartitionsResponse)
        if widened.results[0].error_code == ErrorCode.NONE:
            self.model.topics.made(name, 2)
        await self.rest(1.0)
        self.model.topics.deleting(name)
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        deleted = await self.client.ask_any(gone, DeleteTopicsResponse)
        check(deleted.responses[0].error_code)
        self.model.topics.deleted(name)


class SettingsChanger(Actor):
    """Changes settings of topics that are in use."""

    def __init__(
        self, client: Client, model: Model, choices: Sequence[tuple[str, str, Sequence[str]]]
    ) -> None:
        """Each choice: a topic, a setting, and the values that it may get."""
        super().__init__(client, model)
        self._choices = choices

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(5.0)
            topic, key, values = self.chance.choice(self._choices)
            value = self.chance.choice(values)
            try:
                await self._set(topic, key, value)
                self.model.topics.set(topic, key, value)
            except (Failed, Refused):
                self.model.topics.may_have_set(topic, key, value)

    async def _set(self, topic: str, key: str, value: str) -> None:
        config = AlterableConfig(name=key, config_operation=_SET, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
        response = await self.client.ask_any(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
        code = ErrorCode(response.responses[0].error_code)
        self.world.note("admin", f"{topic} {key}={value}: {code.name}")
        check(code)


class Deleter(Actor):
    """Deletes the oldest messages of a partition, up to somewhere in the middle of a segment.

    Where `to_the_end` says so, it names no offset in some of its requests: then all that is committed goes.
    """

    def __init__(self, client: Client, model: Model, at: TopicPartition, to_the_end: float = 0.0) -> None:
        super().__init__(client, model)
        self._at = at
        self._to_the_end = to_the_end

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(4.0)
            try:
                leader, _ = await self.client.leader(self._at)
                first = await self.client.earliest(self._at)
                found = await self.client.fetch(self._at, first, committed=False, max_wait_ms=0)
                offset = self.chance.randint(first, found.high_watermark)
                if self._to_the_end and self.chance.random() < self._to_the_end:
                    offset = _HIGH_WATERMARK
                await delete_before(self, leader, self._at, offset)
            except (Failed, Refused):
                self.client.forget(self._at)


class Elector(Actor):
    """Elects preferred leaders; where messages may get lost, also replicas that are not in sync."""

    def __init__(
        self, client: Client, model: Model, partitions: Sequence[TopicPartition], loose: TopicPartition
    ) -> None:
        super().__init__(client, model)
        self._partitions = partitions
        self._loose = loose

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(5.0)
            unclean = self.chance.random() < 0.3
            at = self._loose if unclean else self.chance.choice(self._partitions)
            try:
                await elect(self, at, unclean=unclean)
            except Failed:
                continue
