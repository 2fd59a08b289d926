"""Forgetting topics that were deleted long ago. The controller does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.store import Compare
from forebay.core.cluster.images.deleted_topics import outlived

if TYPE_CHECKING:
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.cluster.controller import Controller
    from forebay.broker.live_config import LiveConfig
    from forebay.coordination.metadata import Metadata


class DeletedTopics:
    def __init__(
        self, metadata: Metadata, settings: LiveConfig, controller: Controller, time: BrokerTime
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._controller = controller
        self._time = time

    async def forget_old(self) -> None:
        config = self._settings.current.controller
        old = outlived(
            self._metadata.image.deleted,
            now_ms=self._time.trusted_ms(),
            retention_ms=config.deleted_topics_retention_ms,
            count_max=config.deleted_topics_max,
        )
        if old and self._controller.active:
            guard = Compare.created(self._metadata.keys.controller, self._controller.epoch)
            await self._metadata.change_all(old, [guard])
