"""An administrator who gives clients quotas that they go beyond, alters them, and takes them away."""

from __future__ import annotations

from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Failed, Refused, check
from forebay.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)

_ENTITIES: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("client-id", None),),
    (("client-id", "reader"),),
    (("user", None), ("client-id", None)),
    (("user", "ANONYMOUS"),),
)
"""Each client by itself, one client, and all clients together."""
_RATES: dict[str, tuple[float | None, ...]] = {
    "producer_byte_rate": (1_000.0, 3_000.0, 20_000.0, None),
    "consumer_byte_rate": (200.0, 200.0, 1_000.0, None),
    "controller_mutation_rate": (0.1, 0.5, None),
}
"""None: there is no such quota."""
_LATE_S = 5.0
"""A request without an answer has come by then: it may set a quota after all were removed."""


class QuotaSetter(Actor):
    async def act(self) -> None:
        while not self.stopping and not self.calm:
            await self.rest(1.0)
            rates = {key: self.chance.choice(choices) for key, choices in _RATES.items()}
            try:
                await self._alter(self.chance.choice(_ENTITIES), rates)
            except (Failed, Refused):
                continue  # it does not matter if it was stored: all are removed in the end
        await self._remove_all()
        await self.rest(_LATE_S)
        await self._remove_all()

    async def _remove_all(self) -> None:
        for entity in _ENTITIES:
            await self.retry(lambda entity=entity: self._alter(entity, dict.fromkeys(_RATES)))  # type: ignore[misc]

    async def _alter(
        self, entity: tuple[tuple[str, str | None], ...], rates: dict[str, float | None]
    ) -> None:
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=key, value=rate or 0.0, remove=rate is None) for key, rate in rates.items()],
        )
        response = await self.client.ask_any(
            AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse
        )
        check(response.entries[0].error_code)
        self.world.note("admin", f"quotas of {entity}: {rates}")
