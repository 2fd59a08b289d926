"""A newer format is written only when every broker reads it, and then no broker joins that does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from forebay.coordination.keys import Keys
from forebay.coordination.registrations import raise_format, register_broker
from forebay.coordination.store import Compare, Delete, Put, StoreError, TxnResult
from forebay.core.cluster.registration import FIRST_FORMAT, BrokerRegistration
from forebay.core.cluster.stored.store_format import STORE_FORMAT
from forebay.errors import ConfigError, ErrorCode, KafkaError
from support.brokers.memory_store import MemoryStore

KEYS = Keys("test")
NEWER = STORE_FORMAT + 1


def broker(node: int, reads: int) -> BrokerRegistration:
    return BrokerRegistration(id=node, host="h", port=9, store_format=reads)


async def join(store: MemoryStore, node: int, reads: int) -> None:
    await register_broker(store, KEYS, broker(node, reads), await store.lease(5))


async def test_it_rises_when_all_registered_brokers_read_it() -> None:
    store = MemoryStore()
    await join(store, 1, NEWER)
    await join(store, 2, STORE_FORMAT)
    with pytest.raises(KafkaError, match=r"broker\(s\) 2") as refusal:
        await raise_format(store, KEYS, NEWER)
    assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert await store.get(KEYS.format) is None
    await store.txn(deletes=[Delete(key=KEYS.broker(2))])
    await join(store, 2, NEWER)
    await raise_format(store, KEYS, NEWER)
    item = await store.get(KEYS.format)
    assert item is not None
    assert item.value == str(NEWER).encode()


async def test_a_broker_that_reads_less_does_not_join() -> None:
    store = MemoryStore()
    await join(store, 1, NEWER)
    await raise_format(store, KEYS, NEWER)
    with pytest.raises(ConfigError, match="start a version that is as new"):
        await join(store, 2, STORE_FORMAT)
    await join(store, 3, NEWER)


async def test_brokers_from_before_formats_count_as_the_first() -> None:
    store = MemoryStore()
    await store.txn(puts=[Put(key=KEYS.broker(1), value=b'{"host":"h","port":9,"rack":null}')])
    await raise_format(store, KEYS, FIRST_FORMAT)
    with pytest.raises(KafkaError):
        await raise_format(store, KEYS, FIRST_FORMAT + 1)


async def test_so_do_those_whose_registration_cannot_be_read() -> None:
    store = MemoryStore()
    await store.txn(puts=[Put(key=KEYS.broker(1), value=b"{}")])
    with pytest.raises(KafkaError):
        await raise_format(store, KEYS, FIRST_FORMAT + 1)


class Interrupted(MemoryStore):
    """Does something else first, once, when a key is put."""

    def __init__(self, key: str, meanwhile: Callable[[MemoryStore], Awaitable[None]]) -> None:
        super().__init__()
        self._key = key
        self._meanwhile: Callable[[MemoryStore], Awaitable[None]] | None = meanwhile

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        meanwhile = self._meanwhile
        if meanwhile is not None and any(put.key == self._key for put in puts):
            self._meanwhile = None
            await meanwhile(self)
        return await super().txn(compares, puts, deletes)


async def test_a_broker_that_registers_meanwhile_is_seen() -> None:
    """It registers between the look at the brokers and the write."""
    store = Interrupted(KEYS.format, lambda inner: join(inner, 2, STORE_FORMAT))
    await join(store, 1, NEWER)
    with pytest.raises(KafkaError):
        await raise_format(store, KEYS, NEWER)
    item = await store.get(KEYS.format)
    assert item is not None
    assert item.value == str(FIRST_FORMAT).encode(), "it was taken back before anything was written"


async def test_a_broker_that_was_overtaken_while_it_registered_tries_again() -> None:
    store = Interrupted(KEYS.broker(2), lambda inner: raise_format(inner, KEYS, NEWER))
    await join(store, 1, NEWER)
    with pytest.raises(StoreError):
        await join(store, 2, STORE_FORMAT)
    assert await store.get(KEYS.broker(2)) is None
    with pytest.raises(ConfigError):
        await join(store, 2, STORE_FORMAT)
