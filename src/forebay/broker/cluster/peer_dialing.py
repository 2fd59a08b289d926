"""Connecting to other brokers of the cluster, by the listener that brokers talk to each other by.

All brokers of a cluster have a listener of that name. To change to another one, give it to all brokers first,
then set inter.broker.listener.name of one after the other.
"""

from __future__ import annotations

from forebay.broker.cluster.peer_connection import PeerConnection
from forebay.broker.live_config import LiveConfig
from forebay.broker.ports import Address, Network
from forebay.core.cluster.registration import BrokerRegistration
from forebay.errors import ErrorCode, KafkaError


class PeerDialing:
    def __init__(self, settings: LiveConfig, network: Network) -> None:
        self._settings = settings
        self._network = network

    async def open(
        self,
        peer: BrokerRegistration,
        *,
        client_id: str,
        response_bytes_max: int,
        address: Address | None = None,
    ) -> PeerConnection:
        """Connect to where the broker is registered, unless an `address` is given.

        Raises PeerRefused, or KafkaError NETWORK_EXCEPTION.
        """
        host, port = address or self._registered(peer)
        return await PeerConnection.open(
            self._network.connect, host, port, client_id=client_id, response_bytes_max=response_bytes_max
        )

    def _registered(self, peer: BrokerRegistration) -> Address:
        name = self._settings.current.node.listeners.inter_broker.name
        address = peer.address_of(name)
        if address is None:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                f"broker {peer.id} has no listener {name}, by which this one talks to others: "
                "see inter.broker.listener.name",
            )
        return address
