"""A broker on which quotas are set, with a client that nothing limits and one that quotas are set for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.access.principals import KnownClient
from support.brokers.local_broker import LocalBroker, local_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path) as broker:
        yield broker


@pytest.fixture
def admin(broker: LocalBroker) -> Iterator[KnownClient]:
    with KnownClient(broker) as client:
        yield client


@pytest.fixture
def ada(broker: LocalBroker) -> Iterator[KnownClient]:
    with KnownClient(broker, "User:ada") as client:
        yield client
