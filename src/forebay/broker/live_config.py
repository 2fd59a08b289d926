"""The broker's settings in force: they change while it runs, when an administrator alters them."""

from __future__ import annotations

import logging

from forebay.config import LISTENER_PREFIX, BrokerConfig
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage
from forebay.errors import ConfigError

log = logging.getLogger(__name__)


class LiveConfig:
    __slots__ = ("_node_id", "current")

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self.current = config
        self._node_id = node_id

    def apply(self, image: ClusterImage, *, starting: bool = False) -> None:
        """Settings that administrators have stored win over those the process was started with.

        Stored settings that do not go with those of this process change nothing: it goes on with what it had.
        But a broker does not start without the settings of TLS that were stored for it: it might be less
        protected than it was. Raises ConfigError.
        """
        own = image.broker_config(str(self._node_id)).overrides
        try:
            default = image.broker_config(ALL_BROKERS).overrides
            self.current = self.current.with_dynamic(own=own, default=default)
        except ConfigError as error:
            if starting and any(name.startswith(LISTENER_PREFIX) for name in own):
                raise ConfigError(f"the stored settings of this broker cannot be in force: {error}") from None
            log.error("the stored settings of brokers cannot be in force here", extra={"reason": str(error)})
