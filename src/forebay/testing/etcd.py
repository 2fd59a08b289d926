"""etcd servers for tests, under the name by which docs/testing.md knows them."""

from forebay.local.etcd import EtcdCluster, EtcdFailed, EtcdServer, EtcdTls

__all__ = ["EtcdCluster", "EtcdFailed", "EtcdServer", "EtcdTls"]
