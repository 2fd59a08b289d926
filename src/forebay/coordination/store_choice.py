"""Opens the configured store: etcd in a cluster, else a file in the data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.config import BrokerConfig
from forebay.coordination.store import Store
from forebay.errors import ConfigError
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.coordination.etcd.store import EtcdStore
    from forebay.coordination.sqlite import SqliteStore

STORE_FILE = "forebay.db"


async def open_store(config: BrokerConfig) -> Store:
    """Raises StoreError with what to do if the store is not available."""
    if config.cluster.is_worker:
        raise ConfigError(
            "forebay.worker is for the processes that `forebay serve --workers` starts: leave it out"
        )
    # Each broker needs one of the two: importing only that one keeps the start short.
    if config.cluster.embedded:
        sqlite: type[SqliteStore] = load("forebay.coordination.sqlite:SqliteStore")
        return await sqlite.open(config.node.data_dir / STORE_FILE, syncs=config.storage.syncs)
    etcd: type[EtcdStore] = load("forebay.coordination.etcd.store:EtcdStore")
    return await etcd.open(config.cluster)
