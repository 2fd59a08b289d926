"""Decides which of the stored quotas applies to a client: the most specific entity that limits the key.

| | for | shared by |
|---|---|---|
| 1 | a user's client id | its connections |
| 2 | a user's default client id | each client id of the user by itself |
| 3 | a user | all its clients |
| 4 | the default user's client id | each user's clients with that id |
| 5 | the default user's default client id | each client id of each user by itself |
| 6 | the default user | all clients of each user |
| 7 | a client id | all clients with that id, whoever they are |
| 8 | the default client id | each client id by itself |

An IP address has its own quota, or else that of the default, each address by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from forebay.core.quotas.entities import QuotaEntity, quota_entity
from forebay.core.quotas.keys import QuotaKey


class Quota(NamedTuple):
    """A limit as it applies to one client."""

    bound: float
    """Per second."""
    entity: QuotaEntity
    """The entity for which the limit is set."""
    shared_by: tuple[str, str | None, str | None]
    """Clients with the same value are counted together: the key, then what they have in common."""


Stored = Mapping[QuotaEntity, Mapping[str, float]]


class Quotas:
    """The quotas of a cluster, to look up the one that applies."""

    def __init__(self, stored: Iterable[tuple[QuotaEntity, Mapping[str, float]]] = ()) -> None:
        self._stored: Stored = dict(stored)
        keys = set(QuotaKey) & {key for values in self._stored.values() for key in values}
        self.limits_clients = bool(keys - {QuotaKey.CONNECTION})
        self.limits_connections = QuotaKey.CONNECTION in keys

    def find(self, key: QuotaKey, user: str, client_id: str) -> Quota | None:
        """The quota of a client; None if nothing limits it."""
        for entity, shared in (
            (quota_entity(user=user or None, client_id=client_id or None), (user, client_id)),
            (quota_entity(user=user or None, client_id=None), (user, client_id)),
            (quota_entity(user=user or None), (user, None)),
            (quota_entity(user=None, client_id=client_id or None), (user, client_id)),
            (quota_entity(user=None, client_id=None), (user, client_id)),
            (quota_entity(user=None), (user, None)),
            (quota_entity(client_id=client_id or None), (None, client_id)),
            (quota_entity(client_id=None), (None, client_id)),
        ):
            bound = self._bound(entity, key)
            if bound is not None:
                return Quota(bound, entity, (key, *shared))
        return None

    def find_of_ip(self, ip: str) -> Quota | None:
        for entity in (quota_entity(ip=ip), quota_entity(ip=None)):
            bound = self._bound(entity, QuotaKey.CONNECTION)
            if bound is not None:
                return Quota(bound, entity, (QuotaKey.CONNECTION, ip, None))
        return None

    def _bound(self, entity: QuotaEntity, key: QuotaKey) -> float | None:
        values = self._stored.get(entity)
        return None if values is None else values.get(key)
