"""An administrator who cancels delayed messages, or has them delivered now."""

from __future__ import annotations

from collections.abc import Callable

from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client, Failed
from forebay.sim.models.messages import Model
from forebay.sim.world.places import ALARMS
from forebay.wire.messages.alter_delays import CANCEL, FIRE, AlterDelaysRequest, AlterDelaysResponse

_PAUSE_S = 0.2
_TIMEOUT_MS = 3_000
_FIRE_CHANCE = 0.6
_LATEST_CHANCE = 0.7


class AlarmKeeper(Actor):
    def __init__(self, client: Client, model: Model, latest_ms: Callable[[], int]) -> None:
        """`latest_ms`: the latest time that any broker's clock has shown so far."""
        super().__init__(client, model)
        self._latest_ms = latest_ms

    async def act(self) -> None:
        while not self.stopping:
            await self.rest(_PAUSE_S)
            waiting = self.model.alarms.waiting_at(self._latest_ms())
            if waiting:
                # Often the one with the most time left: its outcome is known before it is due.
                chosen = waiting[-1] if self.chance.random() < _LATEST_CHANCE else self.chance.choice(waiting)
                await self._alter(*chosen, fire=self.chance.random() < _FIRE_CHANCE)

    async def _alter(self, id_: int, value: bytes, *, fire: bool) -> None:
        topic, partition = ALARMS
        request = AlterDelaysRequest(
            topic=topic,
            partition=partition,
            action=FIRE if fire else CANCEL,
            ids=[id_],
            timeout_ms=_TIMEOUT_MS,
        )
        self.model.alarms.altering(value, fire=fire)
        try:
            address, _ = await self.client.leader(ALARMS)
            answer = await self.client.ask(address, request, AlterDelaysResponse, 0)
        except Failed:
            self.client.forget(ALARMS)
            return
        if answer.error_code != ErrorCode.NONE:
            self.client.forget(ALARMS)
        elif answer.results[0].error_code == ErrorCode.NONE:
            self.model.alarms.altered(value, self._latest_ms(), fire=fire)
