"""Connecting to other brokers of the cluster, by the listener that brokers talk to each other by.

All brokers of a cluster have a listener of that name. To change to another one, give it to all brokers first,
then set inter.broker.listener.name of one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peer_connection import PeerConnection
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.ports import Address, Network, Stream
    from forebay.broker.tls.endpoints import TlsEndpoints
    from forebay.core.cluster.registration import BrokerRegistration
    from forebay.wire.sasl.client import Login, SaltedPasswords


class PeerDialing:
    def __init__(
        self, settings: LiveConfig, network: Network, tls: TlsEndpoints, entropy: Callable[[int], bytes]
    ) -> None:
        """`entropy` gives random bytes, for logins."""
        self._settings = settings
        self._network = network
        self._tls = tls
        self._entropy = entropy

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
        listener = self._settings.current.node.listeners.inter_broker
        registered = _registered(peer, listener.name)
        endpoint = self._tls.get(listener.name)

        async def connect(host: str, port: int) -> Stream:
            stream = await self._network.connect(host, port)
            # The certificate is for the address that is registered, from wherever this broker connects.
            return stream if endpoint is None else await endpoint.secure(stream, registered[0])

        connection: type[PeerConnection] = load("forebay.broker.cluster.peers.peer_connection:PeerConnection")
        return await connection.open(
            connect,
            *(address or registered),
            client_id=client_id,
            response_bytes_max=response_bytes_max,
            new_login=self._new_login if listener.protocol.is_sasl else None,
        )

    def _new_login(self) -> Login:
        sasl = self._settings.current.sasl
        assert sasl.broker_user and sasl.broker_password, "the settings were checked"
        password = sasl.broker_password.reveal()
        login: Login = load("forebay.wire.sasl.client:new_login")(
            sasl.broker_mechanism, sasl.broker_user, password, self._entropy, self._salted
        )
        return login

    @cached_property
    def _salted(self) -> SaltedPasswords:
        made: SaltedPasswords = load("forebay.wire.sasl.client:SaltedPasswords")()
        return made


def _registered(peer: BrokerRegistration, listener: str) -> Address:
    address = peer.address_of(listener)
    if address is None:
        raise KafkaError(
            ErrorCode.NETWORK_EXCEPTION,
            f"broker {peer.id} has no listener {listener}, by which this one talks to others: "
            "see inter.broker.listener.name",
        )
    return address
