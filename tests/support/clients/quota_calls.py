"""Client quotas, set and looked up by requests of a test's own client."""

from __future__ import annotations

from typing import Any

from forebay.errors import ErrorCode
from forebay.wire.messages import alter_client_quotas as altering
from forebay.wire.messages import describe_client_quotas as describing
from support.clients.wire_client import WireClient

VERSION = 1
Entity = dict[str, str | None]
"""Types and names; None is the default."""


def alteration(entity: Entity, **values: float | None) -> altering.AlterClientQuotasRequest:
    """Sets values; None removes one."""
    ops = [
        altering.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()
    ]
    parts = [altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return altering.AlterClientQuotasRequest(entries=[altering.EntryData(entity=parts, ops=ops)])


def set_quota(client: WireClient, entity: Entity, **values: float | None) -> None:
    (entry,) = client.call(alteration(entity, **values), VERSION).entries
    assert entry.error_code == ErrorCode.NONE, entry.error_message


def describe(client: WireClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    return client.call(
        describing.DescribeClientQuotasRequest(
            components=[
                describing.ComponentData(entity_type=kind, match_type=match, match=name)
                for kind, match, name in components
            ],
            strict=strict,
        ),
        VERSION,
    )


def described(response: Any) -> list[tuple[Entity, dict[str, float]]]:
    assert response.error_code == ErrorCode.NONE, response.error_message
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries
    ]
