"""Views of topics that others write, and readers of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.core.views.catalog import MATERIALIZE, SOURCE, WHERE
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client, Refused, check
from forebay.sim.actors.consumers.readers import Consumer
from forebay.sim.actors.reading import messages
from forebay.sim.models.facts import Content, name_of
from forebay.sim.models.messages import Model
from forebay.sim.models.views import is_shown, source_of, wrong_views
from forebay.sim.world.places import SHOWN_EVERY, TOPICS
from forebay.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from forebay.wire.messages.fetch import PartitionData

CONDITION = f"offset % {SHOWN_EVERY} = 0"


class ViewMaker(Actor):
    def __init__(self, client: Client, model: Model, views: Mapping[str, str], *, materialize: bool) -> None:
        """`views`: names, and the topics that they show."""
        super().__init__(client, model)
        self._views = views
        self._materialize = materialize

    async def act(self) -> None:
        await self.retry(self._make)
        for view, source in self._views.items():
            self.model.topics.made(view, TOPICS[source])

    async def _make(self) -> None:
        wanted = [self._view(name, source) for name, source in self._views.items()]
        response = await self.client.ask_any(CreateTopicsRequest(topics=wanted), CreateTopicsResponse)
        for result in response.topics:
            if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt was not answered
                check(result.error_code)

    def _view(self, name: str, source: str) -> CreatableTopic:
        query = {SOURCE: source, WHERE: CONDITION, MATERIALIZE: str(self._materialize).lower()}
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in query.items()],
        )


class ViewReader(Consumer):
    """Reads partitions of views, and waits at their ends."""

    max_wait_ms = 1_000
    pause_s = 0.3

    def show(self, _leader: Address, at: TopicPartition, data: PartitionData) -> None:
        shown, position = messages(data, self.positions.get(at, 0), committed=self.committed)
        self.positions[at] = position
        for offset, value in shown:
            self.model.read(self.name, source_of(at), offset, value, committed=self.committed)
        self.model.views.read(self.name, at, shown, position, committed=self.committed)

    async def _recover(self, at: TopicPartition, refused: Refused) -> None:
        """Nothing is deleted from the sources; where messages get lost, the reader begins anew."""
        if source_of(at) in self.model.lasting:
            place = name_of(at, self.positions.get(at, 0))
            self.world.fail(f"{self.name} at {place}, to which it has read: {refused}")
        self.positions[at] = 0


class FillReader(ViewReader):
    """Reads partitions of materialized views, which hold nothing but committed messages."""

    def show(self, _leader: Address, at: TopicPartition, data: PartitionData) -> None:
        shown, position = messages(data, self.positions.get(at, 0), committed=False)
        self.positions[at] = position
        for offset, value in shown:
            self.model.read(self.name, source_of(at), offset, value, committed=True)
        self.model.views.read(self.name, at, shown, position, committed=True)


class LastFillReader(Actor):
    """Reads materialized views until they hold all that is visible of their sources, and nothing else."""

    def __init__(
        self, client: Client, model: Model, sources: Content, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model)
        self._sources = sources
        self._partitions = partitions

    async def act(self) -> None:
        for at in self._partitions:
            content: dict[int, bytes] = {}
            offset = 0
            last = max(filter(is_shown, self._sources[source_of(at)]), default=-1)
            while offset <= last:
                found = await self.retry(
                    partial(self.client.fetch, at, offset, committed=False, max_wait_ms=500)
                )
                shown, offset = messages(found, offset, committed=False)
                content.update(shown)
            for problem in wrong_views({at: content}, self._sources, "visible"):
                self.world.fail(problem)
