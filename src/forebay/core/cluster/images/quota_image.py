"""The client quotas of a cluster in the image, and changes to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay.core.quotas.entities import QuotaEntity
from forebay.core.quotas.keys import QuotaOp, altered
from forebay.core.quotas.text import quota_id
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaImage:
    entity: QuotaEntity
    values: Mapping[str, float]
    """Never empty: an entity without values has no quota."""
    revision: int = 0
    """The mod revision of the quota's key; 0 while it is only planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPut:
    id: str
    quota: QuotaImage


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDeleted:
    id: str


class QuotasDraft:
    """Quotas in the making: the map is copied when it is first written to."""

    def __init__(self, quotas: Mapping[str, QuotaImage]) -> None:
        self.quotas = quotas
        self._own: dict[str, QuotaImage] | None = None

    def apply(self, change: QuotaPut | QuotaDeleted) -> None:
        if self._own is None:
            self.quotas = self._own = dict(self.quotas)
        if isinstance(change, QuotaPut):
            self._own[change.id] = change.quota
        else:
            self._own.pop(change.id, None)


def alter_quota(
    quotas: Mapping[str, QuotaImage], entity: QuotaEntity, ops: Iterable[QuotaOp]
) -> list[QuotaPut | QuotaDeleted]:
    """The change; raises KafkaError and changes nothing if any operation is invalid."""
    found = quotas.get(key := quota_id(entity))
    before: Mapping[str, float] = {} if found is None else found.values
    after = altered(entity, before, ops)
    if after == before:
        return []
    if not after:
        return [QuotaDeleted(id=key)]
    return [QuotaPut(id=key, quota=QuotaImage(entity=entity, values=after))]
