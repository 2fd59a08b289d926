"""Membership of the cluster: a lease, a registration under it, and what must be done before and after.

A broker is there as long as its registration is, and that is as long as its lease. When the lease is lost it
takes a new one and registers again, which makes it a new broker in the eyes of the others (its epoch): it
follows where others lead now, and catches up. It never exits over it.

A registration can also end before its lease: another broker has counted this one as dead, because connections
to it were refused (`failover/`). As soon as the image shows that, this broker leads nothing any more.
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
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from forebay.broker.cluster.departure import Departure
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.cluster.predecessor import Predecessor
from forebay.broker.live_config import LiveConfig
from forebay.broker.ports import Address
from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.config.listeners import EVERY_INTERFACE
from forebay.coordination.metadata import Metadata
from forebay.coordination.registrations import register_broker
from forebay.coordination.store import (
    Compare,
    KeyValue,
    Lease,
    Put,
    Store,
    StoreAway,
    StoreClosed,
    StoreError,
    StoreMismatch,
)
from forebay.core.cluster.config_changes import taken_back
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored.store_format import STORE_FORMAT
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ConfigError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_DIRECTORY_ID = re.compile(rb"[A-Za-z0-9_-]{8,64}")
_FAREWELL_S = 10.0
_REVOKE_S = 1.0
_EXPIRY_MARGIN_S = 3.0
"""For this time after its end a lease may still be seen, while etcd changes its leader for example."""


class LateRoles(Protocol):
    """Partitions that cannot be read in the store now, and are looked at when they can be."""

    def begin(self, *, unsynced: bool, lost: bool) -> None:
        """The broker is about to join. Its disk may lack what was not synced, or is a new one."""

    def note(self, image: ClusterImage) -> bool:
        """Remember what cannot be read; whether there is any."""


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
        predecessor: Predecessor,
        late_roles: LateRoles,
        process: str,
        damaged: Callable[[], set[TopicPartition]],
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`process` is random text that no other process has. `damaged` gives the partitions that cannot be
        opened here, or lack messages that no crash can have taken."""
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._store = store
        self._data = data
        self._lease = lease
        self._departure = departure
        self._predecessor = predecessor
        self._late_roles = late_roles
        self._owns_up = False
        """While it leaves the in-sync sets before it joins."""
        self._process = process
        self._damaged = damaged
        self._metrics = metrics
        self._loop = loop
        self._registration: BrokerRegistration | None = None
        self._claimed_at = 0
        """The revision at which the store was told that this directory is the node's."""
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
            process=self._process,
            store_format=STORE_FORMAT,
        )
        await self._until_store_answers(self._join)

    async def _until_store_answers(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it again while the store is away, for as long as a broker waits for it when it starts."""
        deadline_s = self._loop.time() + self._settings.current.cluster.registration_timeout_ms / 1000
        while True:
            try:
                return await work()
            except StoreAway as error:
                if self._loop.time() > deadline_s:
                    raise
                log.warning("waiting for the store before joining", extra={"reason": error.message})
                await asyncio.sleep(_RETRY_S)

    async def _join(self) -> None:
        assert self._registration is not None
        patience_s = self._settings.current.cluster.lease_ttl_ms / 1000 + _EXPIRY_MARGIN_S
        await self._predecessor.await_end(self._registration, patience_s)
        await self._own_up()
        await self._register()
        await self._metadata.change(lambda image: taken_back(image, self._settings.current, self._node_id))

    def _told(self, name: str, bound: Address) -> Address:
        """The address of a listener that others are told."""
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
        if self._owns_up:
            self._late_roles.note(after)
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

    async def _check_claim(self) -> None:
        """Leave the in-sync sets if another process was this node meanwhile: they may speak of its log."""
        assert self._registration is not None
        if self._settings.current.cluster.embedded:
            return
        await self._predecessor.clear(self._registration)
        item = await self._store.get(self._node_key)
        if item is None or not _is_readable(item):
            await self._claim_node(item)  # no broker has written that
        elif item.mod_revision != self._claimed_at:
            await self._own_up(is_replaced=True)

    async def _own_up(self, *, is_replaced: bool = False) -> None:
        """Leave the in-sync sets for what this disk lacks of what the cluster believes it has.

        `is_replaced`: another process was this node since this one had joined.
        """
        if self._settings.current.cluster.embedded:
            if self._data.power_lost:
                log.warning("leading in new leader epochs", extra={"reason": "the machine lost its power"})
                await self._departure.begin_new_terms()
            self._data.accept_power_loss()
            return
        claim = await self._store.get(self._node_key)
        lost = is_replaced or self._is_of_another_directory(claim)
        self._late_roles.begin(unsynced=self._data.power_lost, lost=lost)
        # The image is from before the logs were opened. Until the last registration ended, a leader may have
        # let this broker join an in-sync set; now none does.
        await self._metadata.catch_up()
        self._owns_up, has_doubts = True, self._late_roles.note(self._metadata.image)
        if lost or self._data.power_lost:
            log.warning(
                "leaving the in-sync sets before joining",
                extra={"reason": _why_departing(lost=lost, is_replaced=is_replaced)},
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
        await self._claim_node(claim)
        self._owns_up = False
        # As long as there are partitions that could not be read, the loss is not made good.
        if not self._late_roles.note(self._metadata.image) and not has_doubts:
            self._data.accept_power_loss()

    def _is_of_another_directory(self, claim: KeyValue | None) -> bool:
        """True if this node had another data directory before."""
        if claim is None or claim.value in (b"", self._data.directory_id.encode()):
            return False
        if not _is_readable(claim):
            log.error("the directory of this node cannot be read in the store", extra={"key": self._node_key})
            return False
        return True

    async def _claim_node(self, before: KeyValue | None) -> None:
        """Raises StoreError if another process has claimed the node since `before` was read, or is registered
        as it: then the in-sync sets may speak of the other's log again."""
        guards = [
            Compare.unchanged(self._node_key, 0 if before is None else before.mod_revision),
            Compare.absent(self._metadata.keys.broker(self._node_id)),
        ]
        put = Put(key=self._node_key, value=self._data.directory_id.encode())
        result = await self._store.txn(guards, [put])
        if not result.ok:
            raise StoreError(
                f"another broker starts as node {self._node_id} at the same time: give each its own node.id"
            )
        self._claimed_at = result.revision

    @property
    def _node_key(self) -> str:
        return f"{self._metadata.keys.node_ids}{self._node_id}"

    # -- registering -------------------------------------------------------------------------------------

    async def _register(self) -> None:
        registration, held = self._registration, self._lease
        assert registration is not None
        await self._predecessor.clear(registration)
        lease = await self._store.lease(self._settings.current.cluster.lease_ttl_ms / 1000)
        try:
            epoch = await register_broker(
                self._store, self._metadata.keys, registration, lease, claimed_at=self._claimed_at
            )
        except StoreError:
            await lease.revoke()
            raise
        except asyncio.CancelledError:
            # The broker stops. It may be registered all the same, under a lease that nobody else knows of.
            await self._give_up(lease)
            raise
        held.current, held.epoch, held.seen = lease, epoch, False
        try:
            await self._wait_for(epoch, lease)
        except StoreError:
            await self._give_up(lease)
            raise
        # In the newest image: `follow` looks for its end from here on only.
        if not self._is_shown(self._metadata.image):
            await self._give_up(lease)
            raise StoreError("the registration was ended as soon as it was made")
        held.seen = True

    async def _wait_for(self, epoch: int, lease: Lease) -> None:
        """Until the image has come to the registration. Raises StoreError when the lease is lost before.

        If the store was put back since, no image comes so far.
        """
        shown = asyncio.create_task(self._metadata.wait_for(epoch))
        lost = asyncio.create_task(lease.lost.wait())
        try:
            await asyncio.wait((shown, lost), return_when=asyncio.FIRST_COMPLETED)
            if shown.done():
                await shown
                return
        finally:
            shown.cancel()
            lost.cancel()
        raise StoreError("the lease was lost before the registration was seen")

    async def _register_again(self) -> None:
        told = ""
        while True:
            try:
                # The store may have been put back meanwhile, and be further than before again. The watch
                # does not show that; a look at everything does, and raises StoreMismatch.
                await self._metadata.catch_up()
                await self._check_claim()
                await self._register()
            except StoreClosed:
                raise
            except (StoreError, ConfigError) as error:
                if str(error) != told:
                    told = str(error)
                    report = log.error if isinstance(error, StoreMismatch) else log.warning
                    report("cannot join the cluster again yet", extra={"reason": told})
                await asyncio.sleep(_RETRY_S)
            else:
                log.info("joined the cluster again", extra={"epoch": self._lease.epoch})
                self.rejoined.send()
                return


def _is_readable(claim: KeyValue) -> bool:
    return claim.value == b"" or _DIRECTORY_ID.fullmatch(claim.value) is not None


def _why_departing(*, lost: bool, is_replaced: bool) -> str:
    if is_replaced:
        return "another process was this node meanwhile, with other data; give each broker its own node.id"
    return "the data directory is new" if lost else "the machine lost its power"
