"""Confirms that the object store is the one that the cluster has copied to.

`core/tiers/object_store_identity.py` has the rule.
The first broker gives a new store its id. A cluster that knows none, because it is new or was restored, takes
the id that it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.coordination.store import Compare, Put, Store, StoreError
from forebay.core.tiers.object_store_identity import decode_store_id, encode_store_id, refusal
from forebay.errors import ProtocolError
from forebay.tiers.object_store import ABSENT, Conflict, Missing, ObjectStore, ObjectStoreError
from forebay.wire.tiers.layout import STORE

if TYPE_CHECKING:
    from forebay.broker.tiers.store_threads import StoreThreads


class KnownObjectStore:
    def __init__(
        self,
        objects: ObjectStore,
        threads: StoreThreads,
        cluster: Store,
        key: str,
        *,
        accepted: str | None,
        new_id: Callable[[], str],
    ) -> None:
        """`key`: where the cluster's store has the id. `accepted`: forebay.remote.store.id."""
        self._objects = objects
        self._threads = threads
        self._cluster = cluster
        self._key = key
        self._accepted = accepted
        self._new_id = new_id
        self._confirmed = False

    async def check(self) -> None:
        """Confirm it unless that was done since the start. Raises ObjectStoreError."""
        if not self._confirmed:
            await self.confirm()

    async def confirm(self) -> None:
        """Look at the store again, since something is missing there. Raises ObjectStoreError."""
        self._confirmed = False
        try:
            known = await self._known()
            found = await self._threads.run(self._read)
            problem = refusal(known, found, self._accepted)
            if problem is not None:
                raise ObjectStoreError(f"{self._objects.url}: {problem}")
            if found is None:
                wanted = self._accepted or self._new_id()
                found = await self._threads.run(lambda: self._create(wanted))
            if found != known:
                await self._remember(known, found)
        except StoreError as error:
            raise ObjectStoreError(f"the id of the object store is not known: {error}") from error
        self._confirmed = True

    async def _known(self) -> str | None:
        item = await self._cluster.get(self._key)
        return None if item is None else item.value.decode(errors="replace")

    async def _remember(self, known: str | None, found: str) -> None:
        if known is None:
            compare = Compare.absent(self._key)
            put = Put(key=self._key, value=found.encode())
            await self._cluster.txn([compare], [put])
        else:  # an administrator has accepted another one
            await self._cluster.txn(puts=[Put(key=self._key, value=found.encode())])
        if await self._known() != found:
            raise ObjectStoreError(f"{self._objects.url}: another broker uses another object store")

    def _read(self) -> str | None:
        """Runs in a thread."""
        try:
            return decode_store_id(self._objects.get(STORE).data)
        except Missing:
            return None
        except ProtocolError as error:
            raise ObjectStoreError(f"{self._objects.url}: {error}") from error

    def _create(self, store_id: str) -> str:
        """Runs in a thread. Returns the id that counts: another broker may have been first."""
        try:
            self._objects.put(STORE, encode_store_id(store_id), replaces=ABSENT)
        except Conflict:
            return self._read() or store_id
        return store_id
