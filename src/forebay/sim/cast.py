"""The cast of a story: the actors that run in it, each in a process on its own host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client
from forebay.sim.actors.dialects import MODERN, POLITE, Dialect, Manners
from forebay.sim.actors.producers.plain import Producer
from forebay.sim.invariants.throttling import Waits
from forebay.sim.models.messages import Model
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.process import SimProcess
from forebay.sim.world.virtual_time import World

P = TypeVar("P", bound=Producer)

MakeActor = Callable[[Client, Model], Actor]


class Cast:
    def __init__(
        self,
        world: World,
        network: SimNetwork,
        model: Model,
        bootstrap: Sequence[Address],
        *,
        value_bytes: int,
    ) -> None:
        """`value_bytes` is the size of the values that producers send, at least."""
        self._world = world
        self._network = network
        self._model = model
        self._bootstrap = list(bootstrap)
        self._value_bytes = value_bytes
        self.actors: list[Actor] = []
        self.on_acknowledged: Callable[[str, float], None] = lambda _host, _asked_at: None
        self.quotas_of: Callable[[str], object] = lambda _host: object()
        """The quotas in force on a host; another object after each change."""
        self._waits = Waits(world, lambda host: self.quotas_of(host))

    def _add(
        self,
        name: str,
        kind: type[P],
        partitions: Sequence[TopicPartition],
        dialect: Dialect = MODERN,
        manners: Manners = POLITE,
    ) -> P:
        actor = self.add(name, partial(kind, partitions=partitions), dialect, manners)
        assert isinstance(actor, kind)
        actor.value_bytes = self._value_bytes
        return actor

    def add(self, name: str, make: MakeActor, dialect: Dialect = MODERN, manners: Manners = POLITE) -> Actor:
        process = SimProcess(self._world, self._network, name, name)
        process.loop.on_failure = lambda message, error: self._world.fail(f"{name}: {message}: {error!r}")
        client = Client(process, name, self._bootstrap, dialect, manners)
        client.on_acknowledged = self.on_acknowledged
        client.waits = self._waits
        actor = make(client, self._model)
        self.actors.append(actor)
        process.spawn(actor.run)
        return actor

    def calm(self) -> None:
        for actor in self.actors:
            actor.calm = True

    def stop(self) -> None:
        for actor in self.actors:
            actor.stopping = True

    @property
    def done(self) -> bool:
        return all(actor.done for actor in self.actors)

    def unfinished(self) -> list[str]:
        return [actor.name for actor in self.actors if not actor.done]
