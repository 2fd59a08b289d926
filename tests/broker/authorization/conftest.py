"""A broker on which only what ACLs allow may be done, and clients whose principals the test chooses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.access.principals import ACCESS, KnownClient
from support.brokers.local_broker import LocalBroker, local_broker


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with local_broker(tmp_path_factory.mktemp("guarded"), ACCESS) as broker:
        yield broker


@pytest.fixture
def admin(guarded: LocalBroker) -> Iterator[KnownClient]:
    with KnownClient(guarded) as client:
        yield client


@pytest.fixture
def ada(guarded: LocalBroker) -> Iterator[KnownClient]:
    """A client of a principal that nothing is allowed."""
    with KnownClient(guarded, "User:ada") as client:
        yield client
