"""The registration that this node finds under its id: of a process before this one, or of one beside it.

A process before this one is dead, because this one holds its data directory. Its registration is removed at
once, so that a broker that was killed is back quickly. But a directory can be copied, and then both processes
have its id. So the registered address is asked first. If somebody answers, other than this process, the
registration stays: this broker waits for its lease to end, and gives up if it does not.

A process tells its own registrations by random text in them. While it runs, it removes no others: whoever has
registered since it joined is alive, or its lease ends soon.
"""

from __future__ import annotations

import asyncio
import logging

from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.cluster.peers.peer_dialing import PeerDialing
from forebay.coordination.keys import Keys
from forebay.coordination.store import Compare, Delete, KeyValue, Store
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored.image_text import decode_broker
from forebay.errors import ConfigError, KafkaError, ProtocolError

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_ANSWER_S_MAX = 2.0
_ANSWER_BYTES_MAX = 1 << 20


class Predecessor:
    def __init__(
        self,
        store: Store,
        keys: Keys,
        lease: HeldLease,
        dialing: PeerDialing,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        self._keys = keys
        self._lease = lease
        self._dialing = dialing
        self._loop = loop

    async def await_end(self, registration: BrokerRegistration, patience_s: float) -> None:
        """Wait until the node's registration by another process is gone. Raises ConfigError if it stays.

        Before it is gone, nothing may be written in the name of this node.
        """
        deadline_s = self._loop.time() + patience_s
        report = log.warning
        while True:
            try:
                return await self.clear(registration)
            except ConfigError as error:
                if self._loop.time() > deadline_s:
                    raise
                report("waiting for a lease to end", extra={"reason": str(error)})
                report = log.debug
                await asyncio.sleep(_RETRY_S)

    async def clear(self, registration: BrokerRegistration) -> None:
        """Remove what a dead process, or this one, has left. Raises ConfigError if it may be another's."""
        item = await self._store.get(self._keys.broker(registration.id))
        if item is not None:
            await self._check_dead(item, registration)
            await self._delete(item)
        # It may have been the controller: another need not wait for its lease to end.
        item = await self._store.get(self._keys.controller)
        if item is not None and item.value == str(registration.id).encode():
            await self._delete(item)

    async def _check_dead(self, item: KeyValue, registration: BrokerRegistration) -> None:
        node = registration.id
        try:
            found = decode_broker(node, item.value, item.create_revision)
        except ProtocolError as error:
            self._check_unreadable(item, error)
            return
        address = (found.host, found.port)
        if found.directory != registration.directory:
            raise ConfigError(
                f"another broker is registered as node {node}, at {found.host}:{found.port}: "
                "give each broker its own node.id"
            )
        if found.process and found.process == registration.process:
            return
        is_here = address == (registration.host, registration.port)
        if self._has_joined or (not is_here and await self._is_answered(found)):
            raise ConfigError(
                f"another process is registered as node {node} with the same directory.id {found.directory},"
                f" at {found.host}:{found.port}, while this one is at"
                f" {registration.host}:{registration.port}: the data directory was copied. Stop one of them;"
                " a new broker needs a node.id of its own and an empty directory"
            )

    @property
    def _has_joined(self) -> bool:
        return self._lease.epoch >= 0

    def _check_unreadable(self, item: KeyValue, error: ProtocolError) -> None:
        """A registration that no lease would end was written by hand, over that of a broker or where none
        was. Under a lease it may be that of a newer version."""
        if item.lease and item.create_revision != self._lease.epoch:
            raise ConfigError(f"another process, perhaps of a newer version, is registered: {error}")
        log.error("the registration of this node was written over; it is deleted", extra={"key": item.key})

    async def _is_answered(self, found: BrokerRegistration) -> bool:
        """True if a broker answers there. Something between may accept connections for one that is dead."""
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                connection = await self._dialing.open(
                    found, client_id="forebay-predecessor", response_bytes_max=_ANSWER_BYTES_MAX
                )
        except (KafkaError, OSError, TimeoutError):
            return False
        connection.close()
        return True

    async def _delete(self, item: KeyValue) -> None:
        compare = Compare.unchanged(item.key, item.mod_revision)
        await self._store.txn([compare], deletes=[Delete(key=item.key)])
