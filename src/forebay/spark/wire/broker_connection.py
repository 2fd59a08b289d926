"""A connection of Spark's driver or workers to one broker: plain or with TLS."""

from __future__ import annotations

import socket
import ssl

from forebay import __version__
from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.spark.wire.security import Security
from forebay.transport.blocking import BlockingConnection
from forebay.wire.messages.api_versions import OWN_SOFTWARE_NAME, ApiVersionsRequest


class BrokerConnection(BlockingConnection):
    def __init__(
        self,
        host: str,
        port: int,
        *,
        security: Security | None = None,
        timeout_s: float = 30.0,
        client_id: str = "forebay-spark",
    ) -> None:
        connected = _connect(host, port, security or Security(), timeout_s)
        super().__init__(connected, f"{host}:{port}", client_id=client_id, timeout_s=timeout_s)
        self._features: dict[str, int] | None = None

    def has_feature(self, name: str, level: int = 1) -> bool:
        """Whether the broker says that it can do something that only some brokers can."""
        if self._features is None:
            answer = self.ask(
                ApiVersionsRequest(
                    client_software_name=OWN_SOFTWARE_NAME, client_software_version=__version__
                )
            )
            self._features = {each.name: each.max_version for each in answer.supported_features}
        return self._features.get(name, 0) >= level


def _connect(host: str, port: int, security: Security, timeout_s: float) -> socket.socket:
    context = security.context()
    try:
        plain = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {host}:{port}: {error}") from error
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise ForebayError(
            f"the certificate of {host}:{port} was refused: {error.verify_message};"
            " kafka.ssl.truststore.location names the file with the authority to trust"
        ) from error
    except OSError as error:
        plain.close()
        message = f"no TLS with {host}:{port}: {error}; kafka.security.protocol must fit the listener"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, message) from error
