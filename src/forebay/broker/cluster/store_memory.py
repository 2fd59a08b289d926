"""The broker's memory of the store: a file on its disk, and a key of its own in the store.

At the start both are compared. If the store has gone back, because it was restored from a backup, what it
says of leaders and in-sync sets may be wrong. Then the broker says so, and before it joins it sees to it that
the store has a marker of this restore: from then on no broker believes them
(`core/cluster/restore_image.py`). One marker is enough for a restore, whichever broker is the first.
One with a later generation than this broker knows of is taken for that of the restore it has noticed. Any
other may have come with the backup, so another one is written.

A marker that cannot be read does not say what may be believed, so every partition is unsettled. A broker
writes another one over it, with a later generation than any that the store knows, and leaders are elected
anew.

The marker also puts the next producer ids far above all that may have been given out since the backup.

The nonce is written whenever the broker has joined, and again at most once a minute. Others compare it, too:
the registration of a broker goes with its lease, also in a backup that is put back. The file follows within a
second when the image shows changes. It names the new nonce before the store has it, so that a crash between
the two is not taken for a restore.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.keys import Keys
from forebay.coordination.producer_id_counter import UnreadableCounter, producer_id_in
from forebay.coordination.store import Compare, KeyValue, Put, Store, StoreError, StoreIdentity
from forebay.coordination.translate import changes_of_range
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut, TopicPut
from forebay.core.cluster.restore_detection import signs_of_restore
from forebay.core.cluster.restore_image import Restore
from forebay.core.cluster.stored.restore_text import decode_restore, encode_restore
from forebay.core.partition.folds.aliases import PRODUCER_IDS_END
from forebay.errors import ProtocolError
from forebay.storage.datadir import DataDir
from forebay.storage.store_evidence import StoreEvidence

log = logging.getLogger(__name__)

PRODUCER_IDS_SKIPPED = 1 << 30
"""More than any cluster gives out between a backup and its restore."""
_SKIPS_LEFT_MIN = 64
_ATTEMPTS_MAX = 16
_NONCE_BYTES = 8
_FILE_INTERVAL_S = 1.0
_NONCE_INTERVAL_S = 60.0


class StoreMemory:
    def __init__(
        self,
        data: DataDir,
        store: Store,
        keys: Keys,
        node_id: int,
        *,
        entropy: Callable[[int], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._data = data
        self._store = store
        self._keys = keys
        self._node_id = node_id
        self._entropy = entropy
        self._now_ms = now_ms
        self._restore = Restore()
        """The last that this broker has seen in the store."""
        self._image_revision = 0
        self._epoch = self._renewed_epoch = 0
        """The registration of this broker, and the one that it had when it last wrote a nonce."""
        self._changed = asyncio.Event()

    # -- at the start ----------------------------------------------------------------------------------

    async def compare(self) -> None:
        """Find out whether the store has gone back since this directory was last used. Raises StoreError."""
        before = self._data.store_evidence
        self._restore = _restore_in(await self._store.get(self._keys.restored))
        if not self._restore.is_readable:
            self._restore = await self._ensure_marker(before or StoreEvidence())
        if before is None:
            return
        identity = await self._store.identity()
        signs = signs_of_restore(before, identity, self._nonce_in(await self._own_item()))
        if self._restore.id != before.restore:
            signs.append(f"restore {self._restore.generation} is noted there, and {before.generation} here")
        if not signs:
            return
        self._data.store_behind = True
        self._restore = await self._ensure_marker(before)
        log.error(
            "the store has gone back to an earlier state, as after the restore of a backup: its in-sync sets "
            "are not believed, leaders are elected by what the replicas hold, and no log is deleted",
            extra={"signs": "; ".join(signs), "restore": self._restore.generation},
        )

    async def _own_item(self) -> KeyValue | None:
        return await self._store.get(self._keys.evidence(self._node_id))

    def _nonce_in(self, item: KeyValue | None) -> str | None:
        """The nonce that this data directory has written; None if another directory of this node has written
        one."""
        if item is None:
            return ""
        try:
            fields = json.loads(item.value)
            return str(fields["nonce"]) if fields["directory"] == self._data.directory_id else None
        except (ValueError, KeyError, TypeError):
            return None

    async def _ensure_marker(self, before: StoreEvidence) -> Restore:
        """Have the store say that it was restored; another broker may be faster."""
        for _ in range(_ATTEMPTS_MAX):
            item = await self._store.get(self._keys.restored)
            found = _restore_in(item)
            if found.generation > before.generation:
                return found
            decided = 0 if found.is_readable else await self._last_decided()
            restore = Restore(
                generation=max(found.generation, before.generation, decided) + 1,
                id=self._entropy(_NONCE_BYTES).hex(),
                found_by=self._node_id,
                time_ms=self._now_ms(),
            )
            guard, skip = await self._skip_producer_ids()
            revision = 0 if item is None else item.mod_revision
            compares = [Compare.unchanged(self._keys.restored, revision), *guard]
            puts = [Put(key=self._keys.restored, value=encode_restore(restore)), *skip]
            if (await self._store.txn(compares, puts)).ok:
                return restore
        raise StoreError("the store changes too fast to note that it was restored; start again")

    async def _last_decided(self) -> int:
        """The latest generation that partitions were decided after, also those of unreadable topics."""
        items, _ = await self._store.range(self._keys.root)
        latest = 0
        for change in changes_of_range(self._keys, items):
            if isinstance(change, PartitionPut):
                latest = max(latest, change.state.restored)
            elif isinstance(change, TopicPut):
                latest = max(latest, change.record.restored)
        return latest

    async def _skip_producer_ids(self) -> tuple[list[Compare], list[Put]]:
        """Empty if the next id cannot be read: then none is given out before a person has set it."""
        key = self._keys.producer_ids
        item = await self._store.get(key)
        try:
            first = 0 if item is None else producer_id_in(item)
        except UnreadableCounter:
            return [], []
        skipped = min(PRODUCER_IDS_SKIPPED, (PRODUCER_IDS_END - first) // _SKIPS_LEFT_MIN)
        guard = Compare.unchanged(key, 0 if item is None else item.mod_revision)
        return [guard], [Put(key=key, value=str(first + skipped).encode())]

    # -- while it runs ---------------------------------------------------------------------------------

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        self._image_revision = after.revision
        self._restore = after.restore
        own = after.brokers.get(self._node_id)
        if own is not None:
            self._epoch = own.epoch
        same = (
            before.topics is after.topics
            and before.brokers is after.brokers
            and before.restore is after.restore
        )
        if not same:
            self._changed.set()

    async def renew(self, workers: WorkerThreads) -> None:
        """Write a new nonce, after this broker has joined. Raises StoreError."""
        epoch = self._epoch
        found = self._nonce_in(await self._own_item())
        identity = await self._store.identity()
        nonce = self._entropy(_NONCE_BYTES).hex()
        update = self._data.update_store_evidence
        await workers.run(partial(update, partial(self._renewed, identity, (nonce, found or ""))))
        value = json.dumps({"nonce": nonce, "directory": self._data.directory_id}).encode()
        result = await self._store.txn(puts=[Put(key=self._keys.evidence(self._node_id), value=value)])
        identity = replace(identity, revision=max(identity.revision, result.revision))
        await workers.run(partial(update, partial(self._renewed, identity, (nonce,))))
        self._renewed_epoch = epoch

    def _renewed(
        self, identity: StoreIdentity, nonces: tuple[str, ...], known: StoreEvidence
    ) -> StoreEvidence:
        seen = self._with_restore(known)
        return replace(
            seen,
            cluster=identity.cluster,
            revision=identity.revision,
            index=identity.index,
            nonces=nonces,
        )

    def _with_restore(self, known: StoreEvidence) -> StoreEvidence:
        if not self._restore.is_readable:
            return known
        return replace(known, restore=self._restore.id, generation=self._restore.generation)

    async def keep(self, workers: WorkerThreads) -> None:
        """Keep the file up with the image, and now and then the nonce."""
        loop = asyncio.get_running_loop()
        renewed_s = loop.time()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if not self._restore.is_readable:
                    await self._ensure_marker(self._data.store_evidence or StoreEvidence())
                if self._epoch != self._renewed_epoch or loop.time() - renewed_s >= _NONCE_INTERVAL_S:
                    renewed_s = loop.time()
                    await self.renew(workers)
                else:
                    await workers.run(self.save)
            except (StoreError, ProtocolError, OSError) as error:
                log.warning("what is known of the store could not be noted", extra={"reason": str(error)})
            await asyncio.sleep(_FILE_INTERVAL_S)

    async def save_in(self, workers: WorkerThreads) -> None:
        """Save before this broker ends; a disk that refuses it does not hold that up."""
        try:
            await workers.run(self.save)
        except OSError as error:
            log.warning("what is known of the store could not be noted", extra={"reason": str(error)})

    def save(self) -> None:
        """Note how far the image has come. Blocks; any thread."""
        self._data.update_store_evidence(
            lambda known: replace(
                self._with_restore(known), revision=max(known.revision, self._image_revision)
            )
        )


def _restore_in(item: KeyValue | None) -> Restore:
    try:
        return Restore() if item is None else decode_restore(item.value)
    except ProtocolError as error:
        log.error("the marker of a restore cannot be read and is replaced", extra={"reason": str(error)})
        return Restore(is_readable=False)
