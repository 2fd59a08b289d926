"""The workload: topics, and actors that write and read them, each in a process on a host of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.broker.sockets import Address
from forebay.errors import ErrorCode
from forebay.sim.actors import Actor
from forebay.sim.administrators import Mover, TopicKeeper
from forebay.sim.client import Client, TopicPartition, check
from forebay.sim.consumers import Consumer, OffsetKeeper, Transformer
from forebay.sim.model import Model
from forebay.sim.network import SimNetwork
from forebay.sim.node import SimProcess
from forebay.sim.producers import (
    IdempotentProducer,
    LeaderAcksProducer,
    NoAcksProducer,
    Producer,
    TransactionalProducer,
)
from forebay.sim.world import World
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TOPICS = {"exact": 2, "plain": 1, "loose": 1, "source": 1, "target": 1}
EXACT: list[TopicPartition] = [("exact", 0), ("exact", 1)]
SURE: list[TopicPartition] = [*EXACT, ("plain", 0), ("source", 0), ("target", 0)]
"""Where every message is acknowledged by all replicas before anybody is told of it."""
ALL: list[TopicPartition] = [*SURE, ("loose", 0)]


class TopicMaker(Actor):
    """Makes the topics that the others use."""

    def __init__(self, world: World, client: Client, model: Model, replication_factor: int) -> None:
        super().__init__(world, client, model)
        self._replication_factor = replication_factor

    async def act(self) -> None:
        for name, count in TOPICS.items():
            await self.retry(lambda name=name, count=count: self._make(name, count))  # type: ignore[misc]

    async def _make(self, name: str, count: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=self._replication_factor)
        response = await self.client.ask_any(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        code = response.topics[0].error_code
        if code != ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt was not answered
            check(code)


class Workload:
    def __init__(self, world: World, network: SimNetwork, model: Model, bootstrap: Sequence[Address]) -> None:
        self._world = world
        self._network = network
        self._model = model
        self._bootstrap = list(bootstrap)
        self.actors: list[Actor] = []

    def start(self) -> None:
        exact = ("source", 0), ("target", 0)
        self.add("producer", lambda client: Producer(*self._of(client), [("plain", 0)]))
        self.add("loose-1", lambda client: LeaderAcksProducer(*self._of(client), [("loose", 0)]))
        self.add("loose-0", lambda client: NoAcksProducer(*self._of(client), [("loose", 0)]))
        self.add("idempotent-a", lambda client: IdempotentProducer(*self._of(client), [*EXACT, exact[0]]))
        self.add("idempotent-b", lambda client: IdempotentProducer(*self._of(client), EXACT))
        self.add(
            "transactional-a", lambda client: TransactionalProducer(*self._of(client), [*EXACT, exact[0]])
        )
        self.add("transactional-b", lambda client: TransactionalProducer(*self._of(client), EXACT))
        if exact[0] in self._model.lasting:  # else what it has read may vanish from under it
            self.add("transformer", lambda client: Transformer(*self._of(client), *exact))
        self.add("reader", lambda client: Consumer(*self._of(client), ALL, committed=False))
        self.add("committed-reader", lambda client: Consumer(*self._of(client), SURE, committed=True))
        self.add("topic-keeper", lambda client: TopicKeeper(*self._of(client)))
        if len(self._bootstrap) > 1:
            self.add("mover", lambda client: Mover(*self._of(client), SURE, len(self._bootstrap)))
        self.add("keeper", lambda client: OffsetKeeper(*self._of(client), EXACT))

    def _of(self, client: Client) -> tuple[World, Client, Model]:
        return self._world, client, self._model

    def add(self, name: str, make: Callable[[Client], Actor]) -> Actor:
        process = SimProcess(self._world, self._network, name, name)
        process.loop.on_failure = lambda message, error: self._world.fail(f"{name}: {message}: {error!r}")
        actor = make(Client(process, name, self._bootstrap))
        self.actors.append(actor)
        process.spawn(actor.run)
        return actor

    def stop(self) -> None:
        for actor in self.actors:
            actor.stopping = True

    @property
    def done(self) -> bool:
        return all(actor.done for actor in self.actors)

    def unfinished(self) -> list[str]:
        return [actor.name for actor in self.actors if not actor.done]
