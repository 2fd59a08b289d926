"""The pytest plugin, found by its entry point: a broker for the session, a fresh topic for each test.

Override `forebay_settings` in a conftest.py to give the broker settings, or `forebay_broker` itself to start
it otherwise. `@pytest.mark.forebay_topic(partitions=3, config={...})` shapes the topic of a test.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from forebay.testing.broker import Broker

if TYPE_CHECKING:
    from forebay.client import Admin
    from forebay.local.cluster import Cluster

_NAME_CHARS_MAX = 120


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "forebay_topic(partitions=1, config={}): the shape of the test's forebay_topic"
    )


@pytest.fixture(scope="session")
def forebay_settings() -> Mapping[str, object]:
    """Settings of the session's broker; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def forebay_broker(forebay_settings: Mapping[str, object]) -> Iterator[Broker]:
    """One broker in this process for the whole session."""
    with Broker(settings=forebay_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def forebay_cluster_settings() -> Mapping[str, object]:
    """Settings of each broker of the session's cluster; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def forebay_cluster(forebay_cluster_settings: Mapping[str, object]) -> Iterator[Cluster]:
    """Three brokers and etcd, each a process of its own, for the whole session. Needs etcd."""
    from forebay.local.cluster import Cluster

    with Cluster(settings=forebay_cluster_settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _forebay_admin(forebay_broker: Broker) -> Iterator[Admin]:
    from forebay.client import Admin

    with Admin(forebay_broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def forebay_topic(request: pytest.FixtureRequest, _forebay_admin: Admin) -> Iterator[str]:
    """The name of a topic that exists, is empty, and belongs to this test alone; deleted afterwards."""
    name = _topic_name(request.node.name)
    marker = request.node.get_closest_marker("forebay_topic")
    shape = dict(marker.kwargs) if marker is not None else {}
    _forebay_admin.create_topic(name, **{"partitions": 1, **shape})
    yield name
    # The test may have deleted it.
    _forebay_admin.delete_topic(name, missing_ok=True)


def _topic_name(test: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", test)[:_NAME_CHARS_MAX]
    return f"{readable}-{uuid.uuid4().hex[:8]}"
