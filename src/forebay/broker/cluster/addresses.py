"""The addresses of brokers that a client gets: those of the listener that it came by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forebay.broker.cluster.failover.pending_failovers import PendingFailovers
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.ports import Address
    from forebay.config import Listener
    from forebay.coordination.metadata import Metadata


class Caller(Protocol):
    """The listener and address by which a client came: its `Connection`."""

    @property
    def listener(self) -> Listener: ...

    @property
    def local(self) -> Address:
        """The address at this end of the client's connection."""


class Addresses:
    def __init__(
        self, metadata: Metadata, settings: LiveConfig, node_id: int, failovers: PendingFailovers
    ) -> None:
        self._metadata = metadata
        self._failovers = failovers
        self._settings = settings
        self._node_id = node_id

    @property
    def controller_id(self) -> int:
        """The elected controller. While there is none, this broker, which answers as well as any."""
        image = self._metadata.image
        return image.controller if image.controller in image.brokers else self._node_id

    def address_for(self, caller: Caller) -> Address:
        """Where a client reaches this broker: the advertised address of the listener that it came by, or else
        the address at this end of its connection."""
        advertised = self._settings.current.node.listeners.advertised.get(caller.listener.name)
        return (advertised.host, advertised.port) if advertised else caller.local

    def addresses_for(
        self, caller: Caller, *, with_gone: bool = False
    ) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of every live broker that has this listener, and of this one in any case;
        `with_gone` also of those that went a short time ago.

        Clients forget brokers that are not listed. While all leases have ended, because etcd was away, a list
        without the broker that answers would be empty, and the client would have no broker to ask again.
        """
        node_id, name = self._node_id, caller.listener.name
        gone = self._failovers.gone() if with_gone else ()
        others = [
            (each.id, *address, each.rack)
            for each in (*self._metadata.image.brokers.values(), *gone)
            if each.id != node_id and (address := each.address_of(name)) is not None
        ]
        own = (node_id, *self.address_for(caller), self._settings.current.node.rack)
        return sorted([own, *others])

    def hidden_from(self, caller: Caller) -> set[int]:
        """The live brokers that a client cannot be sent to, because they lack the listener it came by."""
        node_id, name = self._node_id, caller.listener.name
        brokers = self._metadata.image.brokers.values()
        return {each.id for each in brokers if each.id != node_id and each.address_of(name) is None}
