"""The parts of tiered storage, made when a broker with `forebay.remote.url` first needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.tiers.adoption import Adoption
from forebay.broker.tiers.chunk_files import ChunkFiles
from forebay.broker.tiers.known_object_store import KnownObjectStore
from forebay.broker.tiers.remote_offsets import RemoteOffsets
from forebay.broker.tiers.remote_producers import RemoteProducers
from forebay.broker.tiers.remote_reads import RemoteReads
from forebay.broker.tiers.service import TierService
from forebay.broker.tiers.store_threads import StoreThreads
from forebay.broker.tiers.tier_host import TierHost
from forebay.broker.tiers.topic_removal import TopicRemoval

if TYPE_CHECKING:
    from contextlib import ExitStack

    from forebay.broker.cluster.controller import Controller
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions


class Tiers:
    def __init__(self, base: Foundations, local: LocalPartitions, controller: Controller) -> None:
        config, ports, loop = base.settings.current.tiers, base.ports, base.loop
        assert config.url is not None
        self.store = store = ports.open_objects(config.url)

        def threads(count: int, name: str) -> StoreThreads:
            return StoreThreads(loop, ports.clock, lambda: ports.executor(count, name))

        copying = threads(config.copy_threads, "forebay-tier")
        reading = threads(config.read_threads, "forebay-remote")
        self._threads = (copying, reading)
        self.reads = RemoteReads(
            store,
            ChunkFiles(ports.disk, str(base.settings.current.node.data_dir), ports.entropy(4).hex()),
            base.settings,
            base.metrics,
            reading,
            loop,
        )
        self.offsets = RemoteOffsets(store, base.settings, reading)
        image = base.metadata

        def topic_settings(topic: str) -> tuple[int, dict[str, str]]:
            found = image.image.topics.get(topic)
            overrides = image.image.topic_config(topic).overrides
            return (0 if found is None else len(found.partitions)), dict(overrides)

        host = TierHost(
            store=store,
            known_store=KnownObjectStore(
                store,
                copying,
                base.store,
                base.metadata.keys.remote_store,
                accepted=config.store_id,
                new_id=lambda: ports.entropy(8).hex(),
            ),
            threads=copying,
            writer=f"{base.node_id}-{ports.entropy(6).hex()}",
            settings=base.settings,
            metrics=base.metrics,
            time=base.time,
            clock=ports.clock,
            entropy=ports.entropy,
            topic_settings=topic_settings,
            paces=set(),
        )
        self.producers = RemoteProducers(host, base.background)
        self.adoption = Adoption(host)
        self.service = TierService(
            host,
            base.background,
            loop,
            TopicRemoval(host, is_controller=lambda: controller.active, deleted=lambda: image.image.deleted),
            led=lambda: [each for each in local.table.all() if each.is_leader and not each.closed],
        )

    def close(self) -> None:
        self.service.close()
        self.reads.close()
        for threads in self._threads:
            threads.stop()

    def end_threads(self, closing: ExitStack) -> None:
        for threads in self._threads:
            closing.callback(threads.close)

    @property
    def is_late(self) -> bool:
        """True if a thread was left behind when the broker was stopped."""
        return any(threads.is_late for threads in self._threads)
