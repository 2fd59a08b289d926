"""The access rules of a cluster in the image: each under an id that is derived from it."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.core.acls.bindings import AclBinding
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPut:
    id: str
    acl: AclBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDeleted:
    id: str


class AclsDraft:
    """Rules in the making: the map is copied when it is first written to."""

    def __init__(self, acls: Mapping[str, AclBinding]) -> None:
        self.acls = acls
        self._own: dict[str, AclBinding] | None = None

    def apply(self, change: AclPut | AclDeleted) -> None:
        if self._own is None:
            self.acls = self._own = dict(self.acls)
        if isinstance(change, AclPut):
            self._own[change.id] = change.acl
        else:
            self._own.pop(change.id, None)
