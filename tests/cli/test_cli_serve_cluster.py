"""`forebay serve --cluster`: a broker that joins, keeps its number, and refuses what is not its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from forebay.local.etcd import EtcdCluster
from support.brokers.broker_process import READY, BrokerProcess, running_broker
from support.brokers.forebay_command import forebay, forebay_process

Serve = Callable[..., AbstractContextManager[BrokerProcess]]


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as running:
        yield running


@pytest.fixture
def serve(etcd: EtcdCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Serve:
    """A broker with a data directory of this name, in a cluster of this test alone."""
    cluster = f"forebay.cluster={etcd.url(request.node.name)}"
    return lambda name, *settings: running_broker(tmp_path / name, cluster, *settings)


def node_of(broker: BrokerProcess) -> int:
    ready = READY.match(broker.ready_line)
    assert ready is not None
    return int(ready["node"])


def test_brokers_get_numbers_and_keep_them(serve: Serve) -> None:
    with serve("a") as first, serve("b") as second:
        numbers = [node_of(first), node_of(second)]
        assert numbers == [1, 2]
        second.restart()
        assert node_of(second) == 2
        described = forebay("config", "get", "broker", "2", "node.id", bootstrap=second.bootstrap)
        assert described.out == "2\n"


def test_a_number_that_was_chosen_is_taken(serve: Serve) -> None:
    with serve("a", "node.id=1") as first, serve("b") as second:
        assert [node_of(first), node_of(second)] == [1, 2]


def test_data_of_another_node_or_cluster_is_refused(serve: Serve, etcd: EtcdCluster) -> None:
    with serve("a", "node.id=5") as broker:
        data = str(broker.data)
    url = etcd.url("test_data_of_another_node_or_cluster_is_refused")
    another_node = forebay_process("serve", "--cluster", url, "--node-id", "6", "--data", data)
    assert another_node.code != 0
    assert "node.id=5" in another_node.err
    another_cluster = forebay_process("serve", "--cluster", etcd.url("other"), "--data", data)
    assert another_cluster.code != 0
    assert "cluster.id" in another_cluster.err
    assert "Traceback" not in another_node.err + another_cluster.err
