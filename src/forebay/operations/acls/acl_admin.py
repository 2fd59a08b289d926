"""Administration of ACLs at a broker, for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from forebay.core.acls.bindings import AclBinding
from forebay.core.acls.filters import AclFilter
from forebay.operations.client import Client

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class Acls(Protocol):
    def create(self, acls: Sequence[AclBinding]) -> None: ...
    def describe(self, wanted: AclFilter) -> list[AclBinding]: ...
    def delete(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Delete rules; returns those that were deleted."""


class AclAdmin:
    def __init__(self, client: Client) -> None:
        self._client = client

    @cached_property
    def admin(self) -> AdminClient:
        return self._client.admin()

    @cached_property
    def acls(self) -> Acls:
        """Uses Forebay's own requests, except where only the client library can log in."""
        properties = self._client.properties
        if "OAUTHBEARER" in (properties.get("sasl.mechanism"), properties.get("sasl.mechanisms")):
            from forebay.operations.acls.library_acls import LibraryAcls

            return LibraryAcls(self.admin)
        from forebay.operations.acls.wire_acls import WireAcls

        return WireAcls(self._client)
