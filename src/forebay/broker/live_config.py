"""The broker's settings in force: they change while it runs, when an administrator alters them."""

from __future__ import annotations

from forebay.config import BrokerConfig
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage


class LiveConfig:
    __slots__ = ("_node_id", "current")

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self.current = config
        self._node_id = node_id

    def apply(self, image: ClusterImage) -> None:
        """Settings that administrators have stored win over those the process was started with."""
        self.current = self.current.with_dynamic(
            own=image.broker_config(str(self._node_id)).overrides,
            default=image.broker_config(ALL_BROKERS).overrides,
        )
