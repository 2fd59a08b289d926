"""Administration of client quotas at a broker: the client library has no requests for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forebay.core.quotas.entities import EntityType, QuotaEntity, read_entity
from forebay.core.quotas.filters import Component, MatchType
from forebay.core.quotas.keys import QuotaOp
from forebay.operations.client import Client
from forebay.operations.wire import WireConnection, check
from forebay.wire.messages import alter_client_quotas as altering
from forebay.wire.messages import describe_client_quotas as describing

Stored = tuple[QuotaEntity, dict[str, float]]


class QuotaAdmin:
    def __init__(self, client: Client) -> None:
        self._client = client

    def alter(self, entity: QuotaEntity, ops: Iterable[QuotaOp]) -> None:
        entry = altering.EntryData(
            entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
            ops=[altering.OpData(key=op.key, value=op.value or 0.0, remove=op.value is None) for op in ops],
        )
        with WireConnection.open(self._client) as connection:
            request = altering.AlterClientQuotasRequest(entries=[entry])
            (result,) = connection.ask(request, altering.AlterClientQuotasResponse).entries
        check(result.error_code, result.error_message)

    def describe(self, components: Sequence[Component] = (), *, strict: bool = False) -> list[Stored]:
        wanted = [
            describing.ComponentData(entity_type=each.kind, match_type=each.match, match=each.name)
            for each in components
        ]
        with WireConnection.open(self._client) as connection:
            request = describing.DescribeClientQuotasRequest(components=wanted, strict=strict)
            answer = connection.ask(request, describing.DescribeClientQuotasResponse)
        check(answer.error_code, answer.error_message)
        return [
            (
                read_entity((part.entity_type, part.entity_name) for part in entry.entity),
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]

    def of(self, entity: QuotaEntity) -> dict[str, float]:
        """The quotas of exactly this entity."""
        found = self.describe([component(kind, name) for kind, name in entity.parts], strict=True)
        return next((values for each, values in found if each == entity), {})


def component(kind: EntityType, name: str | None) -> Component:
    return Component(kind, MatchType.DEFAULT if name is None else MatchType.EXACT, name)
