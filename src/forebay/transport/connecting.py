"""Sockets to brokers, with TLS if configured."""

from __future__ import annotations

import socket
import ssl

from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.transport.security import Security


def connect(host: str, port: int, security: Security, timeout_s: float) -> socket.socket:
    """Raises KafkaError NETWORK_EXCEPTION, or ForebayError if the broker's certificate is refused."""
    context = security.context()
    try:
        plain = socket.create_connection((host, port), timeout_s)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host, such as "a..b"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {host}:{port}: {error}") from error
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return plain
    prefix = security.prefix
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise ForebayError(
            f"the certificate of {host}:{port} was refused: {error.verify_message};"
            f" {prefix}ssl.truststore.location names the file with the authority to trust"
        ) from error
    except OSError as error:
        plain.close()
        message = f"no TLS with {host}:{port}: {error}; {prefix}security.protocol must fit the listener"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, message) from error
