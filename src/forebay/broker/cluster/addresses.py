"""The addresses of brokers, as this broker gives them to clients."""

from __future__ import annotations

from forebay.broker.live_config import LiveConfig
from forebay.broker.ports import Address
from forebay.coordination.metadata import Metadata


class Addresses:
    def __init__(self, metadata: Metadata, settings: LiveConfig, node_id: int) -> None:
        self._metadata = metadata
        self._settings = settings
        self._node_id = node_id

    @property
    def controller_id(self) -> int:
        """The elected controller. While there is none, this broker, which answers as well as any."""
        image = self._metadata.image
        return image.controller if image.controller in image.brokers else self._node_id

    def address_for(self, local: Address) -> Address:
        """Where a client reaches this broker: the advertised address, or else `local`, the address at this
        end of the client's connection."""
        advertised = self._settings.current.node.advertised
        return (advertised.host, advertised.port) if advertised else local

    def addresses_for(self, local: Address) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of every live broker, and of this one in any case.

        Clients forget brokers that are not listed. While all leases have ended, because etcd was away, a list
        without the broker that answers would be empty, and the client would have no broker to ask again.
        """
        node_id = self._node_id
        others = [
            (each.id, each.host, each.port, each.rack)
            for each in self._metadata.image.brokers.values()
            if each.id != node_id
        ]
        own = (node_id, *self.address_for(local), self._settings.current.node.rack)
        return sorted([own, *others])
