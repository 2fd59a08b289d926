"""One etcd server and one cluster of three for all tests of the session; break only those of your own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.testing.etcd import EtcdCluster


@pytest.fixture(scope="session")
def one_etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as etcd:
        yield etcd


@pytest.fixture(scope="session")
def three_etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(3) as etcd:
        yield etcd
