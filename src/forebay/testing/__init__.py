"""Real brokers for tests: `with Broker() as broker:`, `with Cluster() as cluster:`, and pytest fixtures.

Importing this is cheap on purpose: pytest loads the plugin in every run, also in those that start no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.local.settings import BrokerFailed
from forebay.testing.broker import Broker

if TYPE_CHECKING:
    from forebay.local.cluster import Cluster

__all__ = ["Broker", "BrokerFailed", "Cluster"]


def __getattr__(name: str) -> object:
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from forebay.local.cluster import Cluster

    return Cluster
