"""The workload: topics, and actors that write and read them, each in a process on a host of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forebay.broker.sockets import Address
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.administrators import Elector, Mover, SettingsChanger, TopicKeeper
from forebay.sim.actors.client import Client, TopicPartition, check
from forebay.sim.actors.consumers import Consumer, OffsetKeeper, Transformer
from forebay.sim.actors.member_protocols import ClassicMember, ConsumerMember
from forebay.sim.actors.producers import (
    IdempotentProducer,
    LeaderAcksProducer,
    NoAcksProducer,
    Producer,
    TransactionalProducer,
)
from forebay.sim.models.messages import Model
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.node import SimProcess
from forebay.sim.world.virtual_time import World
from forebay.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TOPICS = {"exact": 2, "plain": 1, "loose": 1, "source": 1, "target": 1, "brief": 1}
EXACT: list[TopicPartition] = [("exact", 0), ("exact", 1)]
SOURCE: TopicPartition = ("source", 0)
BRIEF: TopicPartition = ("brief", 0)
"""Its oldest messages are deleted by and by; nowhere else is anything."""
LOOSE: TopicPartition = ("loose", 0)
SURE: list[TopicPartition] = [*EXACT, ("plain", 0), SOURCE, ("target", 0), BRIEF]
"""Where every message is acknowledged by all replicas before anybody is told of it."""
ALL: list[TopicPartition] = [*SURE, LOOSE]

GROUP_NAME = "crew"
SHARED: list[TopicPartition] = [*EXACT, SOURCE]
"""What the members of the group share: all partitions of their topics."""
_MEMBERS = 3

_BRIEF_SETTINGS = {"segment.bytes": "1024", "retention.bytes": "2048"}


class TopicMaker(Actor):
    """Makes the topics that the others use."""

    def __init__(self, world: World, client: Client, model: Model, replication_factor: int) -> None:
        super().__init__(world, client, model)
        self._replication_factor = replication_factor

    async def act(self) -> None:
        await self.retry(self._make)
        for name, count in TOPICS.items():
            self.model.topics.made(name, count)

    async def _make(self) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=self._replication_factor,
                configs=_configs(_BRIEF_SETTINGS if name == BRIEF[0] else {}),
            )
            for name, count in TOPICS.items()
        ]
        response = await self.client.ask_any(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        for result in response.topics:
            if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt was not answered
                check(result.error_code)


def _configs(settings: Mapping[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]


def _setting_choices(*, lasting: bool) -> list[tuple[str, str, Sequence[str]]]:
    """What may be set without taking back what the model takes for granted."""
    in_sync = ("2",) if lasting else ("1", "2")
    choices: list[tuple[str, str, Sequence[str]]] = [
        ("brief", "retention.bytes", ("-1", "1024", "4096")),
        ("loose", "retention.bytes", ("-1", "4096")),
        ("loose", "unclean.leader.election.enable", ("true", "false")),
        ("loose", "min.insync.replicas", ("1", "2")),
    ]
    for topic in ("exact", "plain", "source"):
        choices.append((topic, "segment.bytes", ("1024", "4096", "1048576")))
        choices.append((topic, "min.insync.replicas", in_sync))
        choices.append((topic, "retention.ms", ("86400000", "604800000")))
    return choices


class Workload:
    def __init__(self, world: World, network: SimNetwork, model: Model, bootstrap: Sequence[Address]) -> None:
        self._world = world
        self._network = network
        self._model = model
        self._bootstrap = list(bootstrap)
        self.actors: list[Actor] = []

    def start(self) -> None:
        lasting = SOURCE in self._model.lasting
        self._add_producers()
        if lasting:  # else what it has read may vanish from under it
            self.add("transformer", lambda client: Transformer(*self._of(client), SOURCE, ("target", 0)))
        self.add("reader", lambda client: Consumer(*self._of(client), ALL, committed=False))
        self.add("committed-reader", lambda client: Consumer(*self._of(client), SURE, committed=True))
        self.add("keeper", lambda client: OffsetKeeper(*self._of(client), EXACT))
        self._add_members()
        self._add_administrators(lasting=lasting)

    def _add_producers(self) -> None:
        self.add("producer", lambda client: Producer(*self._of(client), [("plain", 0), BRIEF]))
        self.add("loose-1", lambda client: LeaderAcksProducer(*self._of(client), [LOOSE]))
        self.add("loose-0", lambda client: NoAcksProducer(*self._of(client), [LOOSE]))
        self.add("idempotent-a", lambda client: IdempotentProducer(*self._of(client), [*EXACT, SOURCE]))
        self.add("idempotent-b", lambda client: IdempotentProducer(*self._of(client), EXACT))
        self.add("transactional-a", lambda client: TransactionalProducer(*self._of(client), [*EXACT, SOURCE]))
        self.add("transactional-b", lambda client: TransactionalProducer(*self._of(client), EXACT))

    def _add_members(self) -> None:
        chance = self._world.chance("group")
        protocol = chance.choice((ClassicMember, ConsumerMember))
        mortal = chance.randint(0, _MEMBERS)  # in some stories nobody is
        for number in range(_MEMBERS):
            self.add(
                f"member-{number}",
                lambda client, number=number: protocol(  # type: ignore[misc]
                    *self._of(client), GROUP_NAME, SHARED, mortal=number == mortal
                ),
            )

    def _add_administrators(self, *, lasting: bool) -> None:
        brokers = len(self._bootstrap)
        self.add("topic-keeper", lambda client: TopicKeeper(*self._of(client)))
        if brokers > 1:
            choices = _setting_choices(lasting=lasting)
            self.add("mover", lambda client: Mover(*self._of(client), SURE, brokers))
            self.add("elector", lambda client: Elector(*self._of(client), SURE, LOOSE))
            self.add("settings-changer", lambda client: SettingsChanger(*self._of(client), choices))

    def _of(self, client: Client) -> tuple[World, Client, Model]:
        return self._world, client, self._model

    def add(self, name: str, make: Callable[[Client], Actor]) -> Actor:
        process = SimProcess(self._world, self._network, name, name)
        process.loop.on_failure = lambda message, error: self._world.fail(f"{name}: {message}: {error!r}")
        actor = make(Client(process, name, self._bootstrap))
        self.actors.append(actor)
        process.spawn(actor.run)
        return actor

    def calm(self) -> None:
        for actor in self.actors:
            actor.calm = True

    def unshared(self) -> list[TopicPartition]:
        """What no living member of the group has for its own."""
        return self._model.groups.unowned(GROUP_NAME, SHARED)

    def stop(self) -> None:
        for actor in self.actors:
            actor.stopping = True

    @property
    def done(self) -> bool:
        return all(actor.done for actor in self.actors)

    def unfinished(self) -> list[str]:
        return [actor.name for actor in self.actors if not actor.done]
