"""etcd for tests: `one_etcd` and `three_etcd` are the module's, `lone_etcd` and `etcd` the test's to break.

Servers that nobody asks anything elect and renew all the same: those of a module end with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.local.etcd import EtcdCluster


@pytest.fixture(scope="module")
def one_etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def three_etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(3) as etcd:
        yield etcd


@pytest.fixture
def lone_etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as etcd:
        yield etcd


@pytest.fixture
def etcd() -> Iterator[EtcdCluster]:
    """Three servers."""
    with EtcdCluster(3) as etcd:
        yield etcd
