"""Removing delegation tokens that have expired. The controller does it."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.controller import Controller
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Compare
from forebay.lazy import load


class ExpiredTokens:
    def __init__(self, metadata: Metadata, controller: Controller, time: BrokerTime) -> None:
        self._metadata = metadata
        self._controller = controller
        self._time = time

    async def remove(self) -> None:
        tokens = self._metadata.image.tokens
        if not tokens or not self._controller.active:
            return
        over = load("forebay.core.security.delegation_tokens:outlived")(tokens, self._time.trusted_ms())
        if over:
            guard = Compare.created(self._metadata.keys.controller, self._controller.epoch)
            await self._metadata.change_all(over, [guard])
