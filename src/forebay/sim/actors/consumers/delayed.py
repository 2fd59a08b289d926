"""A reader of a topic with delayed messages: it asks for them long before they are due."""

from __future__ import annotations

from collections.abc import Callable

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.client import Client
from forebay.sim.actors.consumers.readers import Consumer
from forebay.sim.actors.reading import shown_records
from forebay.sim.models.messages import Model
from forebay.sim.world.places import LATER
from forebay.wire.messages.fetch import PartitionData


class DelayedReader(Consumer):
    """Does not end before it has read every message that is known to be there."""

    max_wait_ms = 3_000
    pause_s = 0.1

    def __init__(self, client: Client, model: Model, latest_ms: Callable[[str], int]) -> None:
        """`latest_ms(host)`: the latest time that the clock of a broker has shown so far."""
        super().__init__(client, model, [LATER], committed=False)
        self._latest_ms = latest_ms

    @property
    def is_finished(self) -> bool:
        return self.stopping and self.model.topic_delay.has_passed(self.model.offsets(LATER))

    def show(self, leader: Address, at: TopicPartition, data: PartitionData) -> None:
        records, position = shown_records(data, self.positions.get(at, 0), committed=False)
        self.model.topic_delay.read(self.name, records, position, self._latest_ms(leader[0]))
        super().show(leader, at, data)
