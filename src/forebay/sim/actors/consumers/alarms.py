"""A reader of messages that each have their own delay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forebay.broker.ports import Address
from forebay.core.delays.delivered_batch import SCHEDULE_ID
from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.client import Client, Refused
from forebay.sim.actors.consumers.readers import Consumer
from forebay.sim.actors.reading import shown_records
from forebay.sim.models.messages import Model
from forebay.sim.world.places import ALARMS
from forebay.wire.messages.fetch import PartitionData


class AlarmReader(Consumer):
    """Does not end before it has read every message that is certain to come."""

    max_wait_ms = 500
    pause_s = 0.1

    def __init__(self, client: Client, model: Model, latest_ms: Callable[[], int]) -> None:
        """`latest_ms`: the latest time that any broker's clock has shown so far."""
        super().__init__(client, model, [ALARMS], committed=True)
        self._latest_ms = latest_ms

    @property
    def is_finished(self) -> bool:
        if not self.stopping:
            return False
        return ALARMS not in self.model.lasting or not self.model.alarms.missing()

    def show(self, _leader: Address, at: TopicPartition, data: PartitionData) -> None:
        records, self.positions[at] = shown_records(data, self.positions.get(at, 0), committed=True)
        alarms, is_lasting = self.model.alarms, at in self.model.lasting
        for record in records:
            value = bytes(record.value or b"")
            if is_lasting:  # elsewhere messages that were read may be lost, and come again
                alarms.read(self.name, value, record.offset, self._latest_ms(), record.timestamp)
            if any(key == SCHEDULE_ID for key, _ in record.headers):
                alarms.saw_uncommitted(self.name, value)

    async def _recover(self, at: TopicPartition, refused: Refused) -> None:
        """Continue at the start of the partition, if retention may have deleted what is missing."""
        if not self.model.alarms.are_deleted:
            return await super()._recover(at, refused)
        start, position = await self.retry(partial(self.client.earliest, at)), self.positions.get(at, 0)
        if start > position:
            self.model.alarms.skipped(self._latest_ms())
            self.positions[at] = start
        return None
