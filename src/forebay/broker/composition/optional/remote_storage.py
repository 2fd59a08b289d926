"""The object store as other parts see it. Most brokers have none, and then no part of it is made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from forebay.broker.composition.optional.tiers import Tiers
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.partition.partition import Partition
    from forebay.broker.tiers.adoption import Adoption
    from forebay.broker.tiers.remote_offsets import RemoteOffsets
    from forebay.broker.tiers.remote_reads import RemoteReads

log = logging.getLogger(__name__)


class RemoteStorage:
    def __init__(self, settings: LiveConfig, tiers: Callable[[], Tiers]) -> None:
        """`tiers` makes the parts of tiered storage. It is called only if there is a store."""
        self._settings = settings
        self._tiers = tiers

    @property
    def has_store(self) -> bool:
        """True if there is an object store to copy segments to."""
        return self._settings.current.tiers.url is not None

    def offsets(self) -> RemoteOffsets | None:
        return self._tiers().offsets if self.has_store else None

    def reads(self) -> RemoteReads | None:
        return self._tiers().reads if self.has_store else None

    def producers(self, partition: Partition, offset: int) -> bytes:
        """The snapshot of the producers at an offset. Raises KafkaError if it has to be asked for again."""
        return self._tiers().producers.take(partition, offset) if self.has_store else b""

    def adoption(self) -> Adoption:
        """Finds topics in the object store that are to be restored."""
        if not self.has_store:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "this broker has no object store: start all brokers with forebay.remote.url",
            )
        return self._tiers().adoption

    async def begin_at(self, partition: Partition, offset: int) -> None:
        """Have messages deleted that are in the object store."""
        if not self.has_store:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} has messages in an object store, and this broker has none: start it with "
                "forebay.remote.url",
            )
        await self._tiers().service.begin_at(partition, offset)

    def copy_segments(self, partition: Partition) -> None:
        """Have the closed segments of a tiered partition copied, in the role that it has now."""
        assert partition.remote is not None
        if self.has_store:
            self._tiers().service.look_at(partition)
        elif partition.is_leader:
            partition.remote.failure = "this broker was started without forebay.remote.url"
            log.warning(
                "old messages of a tiered partition cannot be read, copied or deleted",
                extra={"partition": str(partition), "reason": partition.remote.failure},
            )
