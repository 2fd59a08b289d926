"""Opens the configured store: etcd in a cluster, else a file in the data directory."""

from __future__ import annotations

from forebay.config import BrokerConfig
from forebay.coordination.store import Store

STORE_FILE = "forebay.db"


async def open_store(config: BrokerConfig) -> Store:
    """Raises StoreError with what to do if the store is not available."""
    # Each broker needs one of the two: importing only that one keeps the start short.
    if config.cluster.embedded:
        from forebay.coordination.sqlite import SqliteStore

        return await SqliteStore.open(config.node.data_dir / STORE_FILE)
    from forebay.coordination.etcd.store import EtcdStore

    return await EtcdStore.open(config.cluster)
