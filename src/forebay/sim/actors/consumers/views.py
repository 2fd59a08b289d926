"""Views of topics that others write, and readers of them."""

from __future__ import annotations

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.core.views.catalog import SOURCE, WHERE
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Refused, check
from forebay.sim.actors.consumers.readers import Consumer
from forebay.sim.actors.reading import messages
from forebay.sim.models.facts import name_of
from forebay.sim.models.views import source_of
from forebay.sim.world.places import SHOWN_EVERY, TOPICS, VIEWS
from forebay.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from forebay.wire.messages.fetch import PartitionData

CONDITION = f"offset % {SHOWN_EVERY} = 0"


class ViewMaker(Actor):
    async def act(self) -> None:
        await self.retry(self._make)
        for view, source in VIEWS.items():
            self.model.topics.made(view, TOPICS[source])

    async def _make(self) -> None:
        request = CreateTopicsRequest(topics=[_view(name, source) for name, source in VIEWS.items()])
        response = await self.client.ask_any(request, CreateTopicsResponse)
        for result in response.topics:
            if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt was not answered
                check(result.error_code)


def _view(name: str, source: str) -> CreatableTopic:
    query = {SOURCE: source, WHERE: CONDITION}
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
