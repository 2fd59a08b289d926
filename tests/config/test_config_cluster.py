"""Which cluster a broker belongs to: the address, what goes with it, and what does not."""

from __future__ import annotations

import pytest

from forebay.config import ClusterConfig, broker_config, describe_broker, load
from forebay.errors import ConfigError

URL = "etcd://10.0.0.1:2379,[::1]:2380/orders"


def test_without_a_cluster_a_broker_is_node_1_of_its_own() -> None:
    config = broker_config()
    assert config.cluster == ClusterConfig()
    assert config.cluster.embedded
    assert config.node.node_id == 1


def test_the_address_names_servers_and_cluster() -> None:
    cluster = broker_config({"forebay.cluster": URL}).cluster
    assert not cluster.embedded
    assert (cluster.name, cluster.tls) == ("orders", False)
    assert cluster.endpoints == (("10.0.0.1", 2379), ("::1", 2380))


def test_a_server_named_twice_counts_once() -> None:
    assert broker_config({"forebay.cluster": "etcd://h:1,h:1/c"}).cluster.endpoints == (("h", 1),)


def test_in_a_cluster_a_node_id_is_assigned_unless_given() -> None:
    config = broker_config({"forebay.cluster": URL})
    assert config.node.node_id is None
    assert config.with_node_id(7).node.node_id == 7
    # Settings that arrive at run time must not make the broker forget its number.
    assert config.with_node_id(7).with_dynamic(own={"max.connections": "5"}, default={}).node.node_id == 7
    assert broker_config({"forebay.cluster": URL, "node.id": "3"}).node.node_id == 3


def test_certificates_and_login() -> None:
    settings = {
        "forebay.cluster": "etcds://h:2379/c",
        "forebay.etcd.ca.file": "/etc/ca.pem",
        "forebay.etcd.cert.file": "/etc/me.pem",
        "forebay.etcd.user": "root",
        "forebay.etcd.password": "secret",
    }
    cluster = broker_config(settings).cluster
    assert cluster.tls
    assert (str(cluster.ca_file), str(cluster.cert_file)) == ("/etc/ca.pem", "/etc/me.pem")
    assert cluster.key_file is None
    assert (cluster.user, cluster.password) == ("root", "secret")


def test_the_password_is_never_shown() -> None:
    settings = {"forebay.cluster": URL, "forebay.etcd.user": "root", "forebay.etcd.password": "hunter2"}
    assert "hunter2" not in repr(describe_broker(broker_config(settings)))


def test_variables_of_a_kubernetes_service_of_etcd_are_no_settings() -> None:
    environ = {"FOREBAY_ETCD_SERVICE_HOST": "10.0.0.1", "FOREBAY_ETCD_PORT_2379_TCP": "x"}
    assert load(None, environ, ()) == broker_config()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"forebay.cluster": "http://h:2379/c"}, "write etcd://"),
        ({"forebay.cluster": "etcd://h:2379"}, "does not name the cluster"),
        ({"forebay.cluster": "etcd://h:2379/a b"}, "does not name the cluster"),
        ({"forebay.cluster": "etcd://h/c"}, "write host:port"),
        ({"forebay.cluster": "etcd://h:0/c"}, "write host:2379"),
        ({"forebay.cluster": "etcd:///c"}, "names 0 etcd servers"),
        ({"forebay.cluster": "etcd://u:p@h:2379/c"}, "forebay.etcd.user"),
        ({"forebay.cluster": URL, "forebay.etcd.ca.file": "x"}, "write etcds://"),
        (
            {"forebay.cluster": "etcds://h:1/c", "forebay.etcd.key.file": "x"},
            "without forebay.etcd.cert.file",
        ),
        ({"forebay.cluster": URL, "forebay.etcd.user": "x"}, "or neither"),
        ({"forebay.lease.ttl.ms": "3000"}, "6000 to 60000"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_write(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        broker_config(settings)


@pytest.mark.parametrize("limit", ["replica.lag.time.max.ms", "replica.socket.timeout.ms"])
def test_a_follower_must_not_wait_for_longer_than_it_may_be_silent(limit: str) -> None:
    """It would be taken for late, and leave the in-sync set of a quiet partition again and again."""
    assert (
        broker_config({"replica.fetch.wait.max.ms": "2000", limit: "2000"}).replication.fetch_wait_ms == 2000
    )
    with pytest.raises(ConfigError, match=rf"replica\.fetch\.wait\.max\.ms \(2001\) .* {limit} \(2000\)"):
        broker_config({"replica.fetch.wait.max.ms": "2001", limit: "2000"})
