"""Users directly in the store, without a broker.

In etcd that works at any time: running brokers see the change. The store of a single broker is a file that
one process owns, so its broker must be stopped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from forebay.config import BrokerConfig
from forebay.coordination.keys import Keys
from forebay.coordination.metadata import load
from forebay.coordination.store import Store, StoreError
from forebay.coordination.store_choice import open_store
from forebay.coordination.translate import Writes
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.security.users import check_new_name, new_credential, put_or_delete
from forebay.wire.sasl.scram import BY_NAME

T = TypeVar("T")

_SALT_BYTES = 24
_ATTEMPTS_MAX = 5


class StoredUsers:
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._keys = Keys(config.cluster.name)

    def credentials(self) -> Mapping[str, Mapping[str, int]]:
        async def read(store: Store) -> Mapping[str, Mapping[str, int]]:
            users = (await load(store, self._keys)).users
            return {
                name: {each.sasl_name: credential.iterations for each, credential in user.credentials.items()}
                for name, user in users.items()
            }

        return self._with_store(read)

    def put(self, name: str, mechanisms: Sequence[str], password: str, iterations: int) -> None:
        check_new_name(name)
        new = {
            BY_NAME[each]: new_credential(BY_NAME[each], password, os.urandom(_SALT_BYTES), iterations)
            for each in mechanisms
        }

        def plan(image: ClusterImage) -> list[Change]:
            user = image.users.get(name)
            return put_or_delete(image, name, {**(user.credentials if user else {}), **new})

        self._change(plan)

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        def plan(image: ClusterImage) -> list[Change]:
            user = image.users.get(name)
            gone = {BY_NAME[each] for each in mechanisms}
            left = {key: value for key, value in user.credentials.items() if key not in gone} if user else {}
            return put_or_delete(image, name, left)

        self._change(plan)

    def _change(self, plan: Callable[[ClusterImage], list[Change]]) -> None:
        async def write(store: Store) -> None:
            for _ in range(_ATTEMPTS_MAX):
                image = await load(store, self._keys)
                writes = Writes(self._keys, image)
                writes.add_all(plan(image))
                if not writes or (await store.txn(writes.compares, writes.puts, writes.deletes)).ok:
                    return
            raise StoreError("somebody else changes the same user: try again")

        self._with_store(write)

    def _with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def run() -> T:
            if self._config.cluster.embedded:
                self._config.node.data_dir.mkdir(parents=True, exist_ok=True)
            store = await open_store(self._config)
            try:
                return await work(store)
            finally:
                await store.close()

        # In a thread, because the caller may have a running loop: a test, for example.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run()).result()
