"""A connection of Spark's driver or workers to one broker."""

from __future__ import annotations

from forebay import __version__
from forebay.transport.blocking import BlockingConnection
from forebay.transport.connecting import connect
from forebay.transport.security import Security
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
        security = security or Security()
        super().__init__(
            connect(host, port, security, timeout_s),
            f"{host}:{port}",
            client_id=client_id,
            timeout_s=timeout_s,
            new_login=security.login,
        )
        self._features: dict[str, int] | None = None

    def has_feature(self, name: str, level: int = 1) -> bool:
        """True if the broker says that it can do something that only some brokers can."""
        if self._features is None:
            answer = self.ask(
                ApiVersionsRequest(
                    client_software_name=OWN_SOFTWARE_NAME, client_software_version=__version__
                )
            )
            self._features = {each.name: each.max_version for each in answer.supported_features}
        return self._features.get(name, 0) >= level
