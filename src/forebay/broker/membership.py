"""Being a member of the cluster: a lease, a registration under it, and what has to be said before and after.

A broker is there as long as its registration is, and that is as long as its lease. When the lease is lost it
takes a new one and registers again, which makes it a new broker in the eyes of the others (its epoch): it
follows where others lead now, and catches up. It never exits over it.

A new lease says nothing of what happened between the leases: the image may still show this broker as the
leader of partitions that others have led since. It is valid only once the image shows its registration, and
with it every election before.

Before it registers, a broker says if its disk holds less than the others believe: all of it gone, when the
directory is new, or what was not synced, when the machine lost its power, or a log whose files are damaged
or gone.
Then it leaves the in-sync sets first, and nobody elects it for what it does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from forebay.broker.sockets import Address
from forebay.coordination.metadata import register_broker
from forebay.coordination.store import Compare, Delete, Lease, Put, StoreClosed, StoreError
from forebay.core.controller import departure, withdrawal
from forebay.core.image import BrokerRegistration, PartitionPut
from forebay.core.settings import taken_back
from forebay.core.stored import decode_broker
from forebay.errors import ConfigError
from forebay.storage.checkpoint import TopicPartition

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

_EVERY_INTERFACE = ("", "0.0.0.0", "::")
_RETRY_S = 0.5
_ATTEMPTS_MAX = 64
_FAREWELL_S = 4.0
_REVOKE_S = 1.0
_EXPIRY_MARGIN_S = 3.0
"""So much later than a lease has run out it may still be seen, while etcd changes its leader for example."""


class Membership:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registration: BrokerRegistration | None = None
        self.lease: Lease | None = None
        self.epoch = -1
        """The broker epoch: larger with every registration."""
        self._seen = False
        """Whether the image shows the registration under the lease."""

    def valid(self) -> bool:
        """Whether this broker can be sure that nobody takes it for dead, or did before its image says so."""
        return self._seen and self.lease is not None and self.lease.valid()

    async def join(self, address: Address) -> None:
        """Register, so that this broker is given work; returns when its own image shows it."""
        node = self._broker.config.node
        host, port = (node.advertised.host, node.advertised.port) if node.advertised else address
        if host in _EVERY_INTERFACE and not self._broker.config.cluster.embedded:
            raise ConfigError(
                f"other brokers cannot reach this one at {host}: set advertised.listeners to its address"
            )
        self._registration = BrokerRegistration(
            id=self._broker.node_id,
            host=host,
            port=port,
            rack=node.rack,
            directory=self._broker.data.directory_id,
        )
        await self._await_predecessor(self._registration)
        await self._own_up()
        await self._register()
        broker = self._broker
        await broker.metadata.change(lambda image: taken_back(image, broker.config, broker.node_id))

    async def keep(self) -> None:
        """Register again whenever the lease was lost."""
        while True:
            assert self.lease is not None
            await self.lease.lost.wait()
            self._broker.metrics.leases_lost += 1
            log.warning("the lease is lost; other brokers lead now, and this one joins them again")
            await self._register_again()

    async def withdraw(self, partitions: Container[TopicPartition]) -> bool:
        """Leave the in-sync sets of partitions that cannot be opened here, so that others lead them.

        Whether that is done; else it has to be tried again.
        """
        broker = self._broker
        minimum = broker.config.controller.min_insync_replicas
        try:
            await self._write_all(
                lambda: withdrawal(broker.image, broker.node_id, partitions, min_insync_replicas=minimum)
            )
        except StoreError as error:
            log.warning("cannot leave the in-sync sets of damaged logs", extra={"reason": str(error)})
            return False
        return True

    async def leave(self) -> None:
        """Hand all leaderships over, as far as that can be done quickly, and go."""
        broker = self._broker
        if broker.config.cluster.embedded:
            return
        broker.replication.stop_fetching()
        try:
            async with asyncio.timeout(_FAREWELL_S):
                if broker.config.replication.controlled_shutdown and self.valid():
                    await self._depart()
        except (StoreError, TimeoutError) as error:
            log.warning("leaving without handing over", extra={"reason": str(error)})
        try:
            async with asyncio.timeout(_REVOKE_S):
                if self.lease is not None:
                    await self.lease.revoke()
        except (StoreError, TimeoutError) as error:
            log.warning("leaving without a word: the lease will run out", extra={"reason": str(error)})

    # -- before ------------------------------------------------------------------------------------------

    async def _await_predecessor(self, registration: BrokerRegistration) -> None:
        """Let the lease of this node's process on another disk end: it may be dead, it may be alive.

        Before it is gone nothing may be said in its name.
        """
        loop = self._broker.loop
        deadline_s = loop.time() + self._broker.config.cluster.lease_ttl_ms / 1000 + _EXPIRY_MARGIN_S
        report = log.warning
        while True:
            try:
                return await self._clear_own_remains(registration)
            except ConfigError as error:
                if loop.time() > deadline_s:
                    raise
                report("waiting for a lease to end", extra={"reason": str(error)})
                report = log.debug
                await asyncio.sleep(_RETRY_S)

    async def _own_up(self) -> None:
        """Tell what this disk lacks of what the cluster believes it has."""
        broker = self._broker
        if broker.config.cluster.embedded:
            broker.data.accept_power_loss()
            return
        lost = await self._is_new_directory()
        # The image is from before the logs were opened. Until the last registration ended, somebody may have
        # let this broker join an in-sync set; now nobody does.
        await broker.metadata.catch_up()
        if lost or broker.data.power_lost:
            log.warning(
                "leaving the in-sync sets before joining",
                extra={"reason": "the data directory is new" if lost else "the machine lost its power"},
            )
            await self._depart(unsynced=True, lost=lost)
        # A partition whose directory was not there may lack all its messages, or be new: nobody can tell.
        damaged = broker.replicas.damaged() | broker.data.made
        if damaged:
            log.warning(
                "leaving the in-sync sets of logs that are damaged or not there",
                extra={"partitions": len(damaged)},
            )
            await self._depart(damaged=True, only=damaged)
        await self._claim_node()
        broker.data.accept_power_loss()

    async def _is_new_directory(self) -> bool:
        """Whether this node had another data directory before."""
        item = await self._broker.store.get(self._node_key)
        return item is not None and item.value not in (b"", self._broker.data.directory_id.encode())

    async def _claim_node(self) -> None:
        await self._broker.store.txn(
            puts=[Put(key=self._node_key, value=self._broker.data.directory_id.encode())]
        )

    async def _depart(
        self,
        *,
        unsynced: bool = False,
        damaged: bool = False,
        lost: bool = False,
        only: Container[TopicPartition] | None = None,
    ) -> None:
        broker = self._broker
        await self._write_all(
            lambda: departure(
                broker.image,
                broker.node_id,
                unsynced=unsynced,
                damaged=damaged,
                lost=lost,
                only=only,
                min_insync_replicas=broker.config.controller.min_insync_replicas,
            )
        )

    async def _write_all(self, plan: Callable[[], list[PartitionPut]]) -> None:
        """Write what is planned, until there is nothing left to write."""
        for _ in range(_ATTEMPTS_MAX):
            changes = plan()
            if not changes:
                return
            failed = await self._broker.metadata.change_all(changes)
            if failed:
                await asyncio.sleep(0.01)  # somebody was faster: the image will show it
        raise StoreError("the cluster changes too fast to leave its in-sync sets; try again")

    @property
    def _node_key(self) -> str:
        return f"{self._broker.metadata.keys.node_ids}{self._broker.node_id}"

    # -- registering -------------------------------------------------------------------------------------

    async def _register(self) -> None:
        broker, registration = self._broker, self._registration
        assert registration is not None
        await self._clear_own_remains(registration)
        lease = await broker.store.lease(broker.config.cluster.lease_ttl_ms / 1000)
        try:
            epoch = await register_broker(broker.store, broker.metadata.keys, registration, lease)
        except StoreError:
            await lease.revoke()
            raise
        self.lease, self.epoch, self._seen = lease, epoch, False
        await broker.metadata.wait_for(epoch)
        self._seen = True

    async def _register_again(self) -> None:
        while True:
            try:
                await self._register()
            except StoreClosed:
                raise
            except (StoreError, ConfigError) as error:
                log.warning("cannot join the cluster again yet", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)
            else:
                log.info("joined the cluster again", extra={"epoch": self.epoch})
                self._broker.follow_coordinators()
                return

    async def _clear_own_remains(self, registration: BrokerRegistration) -> None:
        """Remove the registration of a process before this one; it is dead, for we hold its disk."""
        keys, store = self._broker.metadata.keys, self._broker.store
        item = await store.get(keys.broker(registration.id))
        if item is None:
            return
        found = decode_broker(registration.id, item.value, item.create_revision)
        if found.directory != registration.directory:
            raise ConfigError(
                f"another broker is registered as node {registration.id}, at {found.host}:{found.port}: "
                "give each broker its own node.id"
            )
        await store.txn([Compare.unchanged(item.key, item.mod_revision)], deletes=[Delete(key=item.key)])
