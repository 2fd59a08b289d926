"""Membership of the cluster: a lease, a registration under it, and what must be done before and after.

A broker is there as long as its registration is, and that is as long as its lease. When the lease is lost it
takes a new one and registers again, which makes it a new broker in the eyes of the others (its epoch): it
follows where others lead now, and catches up. It never exits over it.

A registration can also end before its lease: another broker has counted this one as dead, because connections
to it were refused (`early_fencing.py`). As soon as the image shows that, this broker leads nothing any more.
It gives up the lease, and goes on in the same way.

A new lease says nothing of what happened between the leases: the image may still show this broker as the
leader of partitions that others have led since. It is valid only once the image shows its registration, and
with it every election before.

Before it registers, a broker checks whether its disk holds less than the other brokers believe. Everything is
gone if the directory is new; what was not synced may be gone if the machine lost its power; and files of
single logs may be damaged or gone. Then the broker leaves the in-sync sets first (`departure.py`), so that it
is not elected for what it does not have. A broker without others leads all the same, in new leader epochs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from forebay.broker.cluster.departure import Departure
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.live_config import LiveConfig
from forebay.broker.ports import Address
from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.config.listeners import EVERY_INTERFACE
from forebay.coordination.metadata import Metadata, register_broker
from forebay.coordination.store import Compare, Delete, Lease, Put, Store, StoreClosed, StoreError
from forebay.core.cluster.config_changes import taken_back
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_text import decode_broker
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ConfigError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_FAREWELL_S = 10.0
_REVOKE_S = 1.0
_EXPIRY_MARGIN_S = 3.0
"""For this time after its end a lease may still be seen, while etcd changes its leader for example."""


class Membership:
    def __init__(
        self,
        *,
        node_id: int,
        settings: LiveConfig,
        metadata: Metadata,
        store: Store,
        data: DataDir,
        lease: HeldLease,
        departure: Departure,
        damaged: Callable[[], set[TopicPartition]],
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`damaged` gives the partitions that cannot be opened here, or lack messages that no crash can have
        taken."""
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._store = store
        self._data = data
        self._lease = lease
        self._departure = departure
        self._damaged = damaged
        self._metrics = metrics
        self._loop = loop
        self._registration: BrokerRegistration | None = None
        self._ended = asyncio.Event()
        """The lease is lost, or the registration gone."""
        self.rejoined = Signal[[]]()
        """Sent when this broker has registered again after it lost its lease."""

    async def join(self, addresses: Mapping[str, Address]) -> None:
        """Register, so that this broker is given work; returns when its own image shows it.

        `addresses` has what each listener is bound to.
        """
        node = self._settings.current.node
        told = {name: self._told(name, address) for name, address in addresses.items()}
        host, port = told[node.listeners.inter_broker.name]
        self._registration = BrokerRegistration(
            id=self._node_id,
            host=host,
            port=port,
            rack=node.rack,
            directory=self._data.directory_id,
            listeners=tuple((name, *address) for name, address in told.items()),
        )
        await self._await_predecessor(self._registration)
        await self._own_up()
        await self._register()
        await self._metadata.change(lambda image: taken_back(image, self._settings.current, self._node_id))

    def _told(self, name: str, bound: Address) -> Address:
        """What others are told of a listener."""
        advertised = self._settings.current.node.listeners.advertised.get(name)
        host, port = (advertised.host, advertised.port) if advertised else bound
        if host in EVERY_INTERFACE and not self._settings.current.cluster.embedded:
            raise ConfigError(
                f"others cannot reach this broker at {host}: add {name}://, with an address that they can "
                "reach, to advertised.listeners"
            )
        return host, port

    async def keep(self) -> None:
        """Register again whenever the lease was lost, or the registration was ended."""
        while True:
            lease = self._lease.current
            assert lease is not None
            await self._until_ended(lease)
            self._metrics.leases_lost += 1
            if lease.lost.is_set():
                log.warning("the lease is lost; other brokers lead now, and this one joins them again")
            else:
                log.warning("this broker was counted as dead, because it refused connections; it joins again")
                await self._give_up(lease)
            await self._register_again()

    async def _until_ended(self, lease: Lease) -> None:
        """Until the lease is lost, or the image does not show the registration under it."""
        lost = asyncio.create_task(lease.lost.wait())
        lost.add_done_callback(lambda _: self._ended.set())
        try:
            while self._lease.seen and not lease.lost.is_set():
                self._ended.clear()
                await self._ended.wait()
        finally:
            lost.cancel()

    async def _give_up(self, lease: Lease) -> None:
        """Nobody relies on it any more; what else is under it should go, too."""
        try:
            async with asyncio.timeout(_REVOKE_S):
                await lease.revoke()
        except (StoreError, TimeoutError) as error:
            log.warning("a lease is left to run out", extra={"reason": str(error)})

    def follow(self, _before: ClusterImage, after: ClusterImage) -> None:
        """Stop leading as soon as the image does not show the registration. Other parts follow after this."""
        held = self._lease
        if held.seen and not self._is_shown(after):
            held.seen = False
            self._ended.set()

    def _is_shown(self, image: ClusterImage) -> bool:
        registered = image.brokers.get(self._node_id)
        return registered is not None and registered.epoch == self._lease.epoch

    async def leave(self, stop_following: Callable[[], None]) -> None:
        """Hand all leaderships over, as far as that can be done quickly, and go.

        What this broker has led it must not follow: a replica that fetches rejoins the in-sync sets. It
        goes on fetching what it follows until others lead the rest, since producers wait for it meanwhile.
        """
        if self._settings.current.cluster.embedded:
            stop_following()
            return
        try:
            async with asyncio.timeout(_FAREWELL_S):
                if self._settings.current.replication.controlled_shutdown and self._lease.valid():
                    await self._departure.hand_over()
                    stop_following()
                    await self._departure.depart()
        except (StoreError, TimeoutError) as error:
            log.warning("leaving without handing over", extra={"reason": str(error)})
        stop_following()
        try:
            async with asyncio.timeout(_REVOKE_S):
                if self._lease.current is not None:
                    await self._lease.current.revoke()
        except (StoreError, TimeoutError) as error:
            log.warning("leaving without a word: the lease will run out", extra={"reason": str(error)})

    # -- before ------------------------------------------------------------------------------------------

    async def _await_predecessor(self, registration: BrokerRegistration) -> None:
        """Wait until the lease of this node's process on another disk ends: it may be dead, it may be alive.

        Before its registration is gone, nothing may be written in its name.
        """
        loop = self._loop
        deadline_s = loop.time() + self._settings.current.cluster.lease_ttl_ms / 1000 + _EXPIRY_MARGIN_S
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
        """Leave the in-sync sets for what this disk lacks of what the cluster believes it has."""
        if self._settings.current.cluster.embedded:
            if self._data.power_lost:
                log.warning("leading in new leader epochs", extra={"reason": "the machine lost its power"})
                await self._departure.begin_new_terms()
            self._data.accept_power_loss()
            return
        lost = await self._is_new_directory()
        # The image is from before the logs were opened. Until the last registration ended, a leader may have
        # let this broker join an in-sync set; now none does.
        await self._metadata.catch_up()
        if lost or self._data.power_lost:
            log.warning(
                "leaving the in-sync sets before joining",
                extra={"reason": "the data directory is new" if lost else "the machine lost its power"},
            )
            await self._departure.depart(unsynced=True, lost=lost)
        # A partition whose directory was missing may be new, or may have lost all its messages.
        damaged = self._damaged() | self._data.made
        if damaged:
            log.warning(
                "leaving the in-sync sets of logs that are damaged or not there",
                extra={"partitions": len(damaged)},
            )
            await self._departure.depart(damaged=True, only=damaged)
        await self._claim_node()
        self._data.accept_power_loss()

    async def _is_new_directory(self) -> bool:
        """Whether this node had another data directory before."""
        item = await self._store.get(self._node_key)
        return item is not None and item.value not in (b"", self._data.directory_id.encode())

    async def _claim_node(self) -> None:
        await self._store.txn(puts=[Put(key=self._node_key, value=self._data.directory_id.encode())])

    @property
    def _node_key(self) -> str:
        return f"{self._metadata.keys.node_ids}{self._node_id}"

    # -- registering -------------------------------------------------------------------------------------

    async def _register(self) -> None:
        registration, held = self._registration, self._lease
        assert registration is not None
        await self._clear_own_remains(registration)
        lease = await self._store.lease(self._settings.current.cluster.lease_ttl_ms / 1000)
        try:
            epoch = await register_broker(self._store, self._metadata.keys, registration, lease)
        except StoreError:
            await lease.revoke()
            raise
        held.current, held.epoch, held.seen = lease, epoch, False
        image = await self._metadata.wait_for(epoch)
        if not self._is_shown(image):
            await self._give_up(lease)
            raise StoreError("the registration was ended as soon as it was made")
        held.seen = True

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
                log.info("joined the cluster again", extra={"epoch": self._lease.epoch})
                self.rejoined.send()
                return

    async def _clear_own_remains(self, registration: BrokerRegistration) -> None:
        """Remove the registration of a process before this one; it is dead, for we hold its disk."""
        await self._clear_registration(registration)
        await self._clear_election()

    async def _clear_registration(self, registration: BrokerRegistration) -> None:
        item = await self._store.get(self._metadata.keys.broker(registration.id))
        if item is None:
            return
        found = decode_broker(registration.id, item.value, item.create_revision)
        if found.directory != registration.directory:
            raise ConfigError(
                f"another broker is registered as node {registration.id}, at {found.host}:{found.port}: "
                "give each broker its own node.id"
            )
        compare = Compare.unchanged(item.key, item.mod_revision)
        await self._store.txn([compare], deletes=[Delete(key=item.key)])

    async def _clear_election(self) -> None:
        """The process before may have been the controller: another need not wait for its lease to end."""
        item = await self._store.get(self._metadata.keys.controller)
        if item is not None and item.value == str(self._node_id).encode():
            compare = Compare.unchanged(item.key, item.mod_revision)
            await self._store.txn([compare], deletes=[Delete(key=item.key)])
