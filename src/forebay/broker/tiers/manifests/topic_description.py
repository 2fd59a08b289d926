"""The description of a topic in the object store, by which it can be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.tiers.reading import RemoteTopic, encode_topic
from forebay.wire.tiers.layout import topic_key

if TYPE_CHECKING:
    from forebay.broker.partition.partition import Partition
    from forebay.broker.tiers.tier_host import TierHost


class TopicDescription:
    def __init__(self, host: TierHost, partition: Partition) -> None:
        self._host = host
        self._topic, self._topic_id = partition.topic, partition.topic_id
        self._written = b""

    async def write(self) -> None:
        """Write down the topic's name and settings, if they have changed. Raises ObjectStoreError."""
        host = self._host
        count, settings = host.topic_settings(self._topic)
        data = encode_topic(RemoteTopic(self._topic, self._topic_id, count, settings))
        if data != self._written:
            await host.threads.run(lambda: host.store.put(topic_key(self._topic_id), data))
            self._written = data

    async def write_again(self) -> None:
        """The same, though they have not changed: it may have been lost."""
        self._written = b""
        await self.write()
