"""A real broker for tests: `with Broker() as broker:` and the pytest fixtures of `forebay.testing.plugin`.

Importing this is cheap on purpose: pytest loads the plugin in every run, also in those that start no broker.
"""

from __future__ import annotations

from forebay.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
