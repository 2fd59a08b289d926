"""A broker's life: open what it is made of, join the cluster, serve, leave, close.

One event loop owns everything. What blocks (syncing, cold reads, the store) runs in small pools of threads
that answer through the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.store_memory import StoreMemory
from forebay.broker.composition.foundations import Foundations
from forebay.broker.node import Node
from forebay.broker.ports import Address, Ports
from forebay.broker.system_ports import real_ports
from forebay.config import BrokerConfig
from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata
from forebay.coordination.permanent_values import allocate_node_id, ensure_cluster_id, ensure_login_secret
from forebay.coordination.store import Store, StoreAway
from forebay.errors import ConfigError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

T = TypeVar("T")

_SECRET_BYTES = 32
_STORE_RETRY_S = 1.0
_LAST_WORDS_S = 0.02
"""When the broker is stopped, its connections stay open for this time, for requests that wait for a
coordinator's answer."""


class Broker:
    """Make one inside a running event loop and await `run`."""

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        self._config = config
        self._ports = ports or real_ports(config)
        self._time = BrokerTime(self._ports.clock)
        self._stopping = asyncio.Event()
        self._clean = False
        """True if all logs were closed in order."""
        self.node: Node | None = None
        """Its parts, once `run` has opened what they need."""

    async def run(self, on_ready: Callable[[Address], None]) -> None:
        """Serve until stop() is called; everything is closed when this returns or raises."""
        async with contextlib.AsyncExitStack() as closing:  # what was opened last is closed first
            ports = self._ports
            data = DataDir.open(ports.disk, str(self._config.node.data_dir), ports.entropy)
            closing.callback(lambda: data.close(clean=self._clean))
            closing.callback(self._end_threads)
            opened = await unless_stopped(self._open_when_store_answers(data), self._stopping)
            if opened is None:
                return
            ((store, node),) = opened
            closing.push_async_callback(store.close)
            self.node = node
            closing.callback(self._close_node)
            node.assignment.open_all(node.image)
            await serve(node, on_ready, self._stopping)

    def stop(self) -> None:
        self._stopping.set()

    @property
    def leaves_threads(self) -> bool:
        """True if a thread was given up when the broker was stopped: it may end much later."""
        return self.node is not None and self.node.leaves_threads

    def reload_certificates(self) -> None:
        if self.node is not None:
            self.node.tls.reload()

    def _close_node(self) -> None:
        """A part that fails to close keeps no other from closing."""
        assert self.node is not None
        with contextlib.ExitStack() as closing:  # the last comes first
            closing.callback(self._close_logs, self.node)
            if self.node.has("compactor"):
                closing.callback(self.node.compactor.close)
            closing.callback(self.node.local.flush.close)
            closing.callback(self.node.offsets_by_time.close)
            closing.callback(self.node.examiner.close)
            self.node.end_own_threads(closing)
            if self.node.has("exporter"):
                closing.callback(self.node.exporter.close)
            closing.callback(self.node.server.close)
            closing.callback(self.node.peers.close)
            closing.callback(self.node.replication.following.stop)

    def _close_logs(self, node: Node) -> None:
        self._clean = node.assignment.close_all()

    def _end_threads(self) -> None:
        """Wait for work that may take long. By now other brokers know that this one has gone."""
        if self.node is not None:
            with contextlib.ExitStack() as closing:
                closing.callback(self.node.workers.close)
                self.node.end_late_threads(closing)
                closing.callback(self.node.cold_reads.close)

    async def _open_when_store_answers(self, data: DataDir) -> tuple[Store, Node]:
        """Wait for a store that is away: brokers may come up before it does. Raises StoreError."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._config.cluster.registration_timeout_ms / 1000
        while True:
            try:
                return await self._open(data)
            except StoreAway as error:
                if loop.time() >= deadline_s:
                    raise
                log.warning(
                    "waiting for the store",
                    extra={"left_s": round(deadline_s - loop.time()), "reason": error.message},
                )
                await asyncio.sleep(min(_STORE_RETRY_S, deadline_s - loop.time()))

    async def _open(self, data: DataDir) -> tuple[Store, Node]:
        store = await self._ports.open_store(self._config)
        try:
            return store, await self._open_node(data, store)
        except BaseException:
            await store.close()
            raise

    async def _open_node(self, data: DataDir, store: Store) -> Node:
        config, keys = self._config, Keys(self._config.cluster.name)
        cluster_id = await self._find_cluster_id(data, store, keys)
        node_id = config.node.node_id
        if node_id is None:
            node_id = data.node_id or await allocate_node_id(store, keys)
            config = config.with_node_id(node_id)
        data.claim(cluster_id, node_id)
        memory = StoreMemory(
            data, store, keys, node_id, entropy=self._ports.entropy, now_ms=self._time.now_ms
        )
        await memory.compare()
        metadata = await Metadata.open(store, keys)
        return Node(
            Foundations(
                node_id=node_id,
                config=config,
                ports=self._ports,
                time=self._time,
                data=data,
                store=store,
                metadata=metadata,
                store_memory=memory,
                login_secret=await self._login_secret(store, keys),
            )
        )

    async def _login_secret(self, store: Store, keys: Keys) -> bytes:
        """The secret of the cluster's logins, the same on all brokers; none where nobody logs in."""
        if not any(listener.protocol.is_sasl for listener in self._config.node.listeners.all):
            return b""
        return await ensure_login_secret(store, keys, self._ports.entropy(_SECRET_BYTES))

    async def _find_cluster_id(self, data: DataDir, store: Store, keys: Keys) -> str:
        known, cluster = data.cluster_id, self._config.cluster
        belongs = known is not None and cluster.url is not None
        # A mistyped name must not create a new cluster, which would know nothing of this data.
        if belongs and await store.get(keys.cluster_id) is None:
            raise ConfigError(
                f"the data directory belongs to the cluster with the cluster.id {known}, and there is no "
                f"cluster {cluster.name!r} in etcd yet: correct forebay.cluster, or start "
                "with an empty directory"
            )
        return await ensure_cluster_id(store, keys, known or _new_cluster_id(self._ports.entropy))


def _new_cluster_id(entropy: Callable[[int], bytes]) -> str:
    return urlsafe_b64encode(entropy(16)).decode().rstrip("=")


async def unless_stopped(work: Coroutine[Any, Any, T], stopping: asyncio.Event) -> tuple[T] | None:
    """The result, in a tuple; None if the broker is stopped first, while it waits for others."""
    done, stopped = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({done, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return (done.result(),) if done.done() else None
    finally:
        for task in (done, stopped):
            task.cancel()
        await asyncio.wait({done, stopped})


async def serve(node: Node, on_ready: Callable[[Address], None], stopping: asyncio.Event) -> None:
    """From joining the cluster to leaving it."""
    listeners = node.config.node.listeners
    if node.remote.has_store:
        _ = node.tiers  # a place that cannot be used is found at the start
    node.server.listen(listeners.all)
    addresses = node.server.addresses
    if node.config.node.metrics is not None:
        await node.exporter.start(*node.config.node.metrics)
    async with asyncio.TaskGroup() as tasks:
        node.background.open(tasks)
        tracking = node.background.need(node.metadata.follow, "following the cluster's metadata")
        node.follow_metadata()
        await node.coordinators.producer_ids.raise_counter(each.producers for each in node.partitions.all())
        if await unless_stopped(node.membership.join(addresses), stopping) is None:
            await _leave_early(node)
            tracking.cancel()
            node.background.close()
            return
        await node.store_memory.renew(node.workers)
        node.coordinators.follow()
        watching = node.background.keep(node.dead_letter_watching.run, "looking for dead letters that wait")
        delaying = node.background.keep(node.delaying.run, "following delays")
        growing = node.background.keep(node.growing.run, "opening partitions that were folded")
        tiering = node.background.keep(node.tiering.run, "copying segments to the object store")
        filling = node.background.keep(node.view_filling.run, "filling materialized views")
        renewing = node.background.keep(node.tls.keep_current, "looking for new certificates")
        remembering = node.background.keep(
            lambda: node.store_memory.keep(node.workers), "noting how far the store has come"
        )
        claiming = node.background.keep(node.claims.run, "reporting what is held after a restore")
        running = [
            remembering,
            claiming,
            renewing,
            tracking,
            watching,
            delaying,
            growing,
            filling,
            tiering,
            *node.upkeep.start(),
        ]
        replicating = _start_replication(node)
        leaving_first = [
            node.background.need(node.membership.keep, "keeping the broker's lease"),
            node.background.keep(node.controller.run, "being the controller"),
        ]
        node.server.start()
        if node.assignment.later.has_unchecked:
            node.assignment.later.open_some()
            raising = node.background.keep(lambda: _raise_counter_again(node), "looking for producer ids")
            running.append(raising)
        on_ready(addresses[listeners.all[0].name])
        await stopping.wait()
        if node.has("exporter"):
            node.exporter.health.stop()
        for task in leaving_first:
            task.cancel()
        await asyncio.wait(leaving_first)
        node.failover.close()
        # Another controller has to act while this broker hands over: a third one may die meanwhile.
        await node.controller.resign()
        # A replica that fetches after it left the in-sync sets would rejoin them.
        node.replication.following.take_no_more()
        await node.membership.leave(node.replication.following.stop)
        for task in replicating:
            task.cancel()
        await node.store_memory.save_in(node.workers)
        node.end_services()
        for task in running:
            task.cancel()
        await asyncio.sleep(_LAST_WORDS_S)
        node.background.close()
        node.peers.close()
        node.server.close()
        node.audit.close()


async def _leave_early(node: Node) -> None:
    """Leave before this broker serves. Parts that follow the image may have begun work all the same, and the
    store may have its registration already: others would count on it until its lease ends.

    What is known of the store is not saved: a restore that this broker has found is to be found again."""
    node.failover.close()
    node.replication.following.take_no_more()
    await node.membership.leave(node.replication.following.stop)
    node.end_services()


async def _raise_counter_again(node: Node) -> None:
    """Some logs may have been opened after the broker was ready. They know of producer ids, too."""
    await node.assignment.later.all_checked()
    await node.coordinators.producer_ids.raise_counter(each.producers for each in node.partitions.all())


def _start_replication(node: Node) -> list[asyncio.Task[None]]:
    keep = node.background.keep
    tasks = [
        keep(node.replication.isr.run, "proposing in-sync replicas"),
        keep(node.replication.isr.check_lag, "looking for replicas that lag"),
        keep(node.ack_expiry.run, "ending waits for replicas"),
    ]
    node.replication.following.start()
    return tasks
