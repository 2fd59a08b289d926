"""The manifest of one partition in the object store, read and replaced in threads by its leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple, TypeVar

from forebay.broker.tiers.known_object_store import KnownObjectStore
from forebay.broker.tiers.store_threads import StoreThreads
from forebay.tiers.object_store import ABSENT, Conflict, ManifestLost, Missing, ObjectStore
from forebay.tiers.reading import has_manifest, has_segments, read_tagged_manifest
from forebay.wire.tiers.layout import manifest_key
from forebay.wire.tiers.manifest import Manifest, encode_manifest

log = logging.getLogger(__name__)

T = TypeVar("T")

_DELETED_BETWEEN_LOOKS = 10


class _Version(NamedTuple):
    """What tells one version of a manifest from the others."""

    writer: str
    version: int
    start_offset: int
    next_offset: int


class ManifestFile:
    def __init__(
        self,
        store: ObjectStore,
        known_store: KnownObjectStore,
        threads: StoreThreads,
        topic_id: bytes,
        partition: int,
    ) -> None:
        self._store = store
        self._known_store = known_store
        self._threads = threads
        self._topic_id = topic_id
        self._partition = partition
        self._tag = ABSENT
        self._tried: set[_Version] = set()
        """Versions of which it is not known whether they were stored."""
        self.is_lost = False
        """True if it is known to be missing, or not to be the one that counts."""

    async def read(self) -> Manifest | None:
        """None if nothing was ever copied. Raises ObjectStoreError also if it is missing in another way."""
        await self._known_store.check()
        found = await self._look(partial(read_tagged_manifest, self._store, self._topic_id, self._partition))
        if found is None:
            await self._known_store.confirm()  # it may have been replaced by an empty one
            self._tag = ABSENT
            return None
        manifest, self._tag = found
        return manifest

    async def is_current(self) -> bool:
        """True if the last version that was read or written here is the one that counts."""
        await self._known_store.check()
        return await self._look(self._has_tag(self._tag))

    def is_tried(self, manifest: Manifest) -> bool:
        """True if it may be one that was stored here, and of which only the answer was lost."""
        return _version(manifest) in self._tried

    async def has_segments_beside(self, manifest: Manifest) -> bool:
        """True if there are segments that it does not name."""
        named = {*manifest.pending, *(doomed.key for doomed in manifest.doomed)}
        named.update(segment.key for segment in manifest.segments)
        return await self._threads.run(
            partial(has_segments, self._store, self._topic_id, self._partition, beside=named)
        )

    async def _look(self, look: Callable[[], T]) -> T:
        try:
            found = await self._threads.run(look)
        except ManifestLost:
            self.is_lost = True
            await self._known_store.confirm()  # an upload may have ended in another store
            raise
        self.is_lost = False
        return found

    def _has_tag(self, tag: str) -> Callable[[], bool]:
        return partial(has_manifest, self._store, self._topic_id, self._partition, tag)

    async def delete(self, keys: Collection[str]) -> bool:
        """Delete objects that the version read or written last has doomed. False if another counts now."""
        await self._known_store.check()
        try:
            return await self._threads.run(partial(self._delete, keys, self._has_tag(self._tag)))
        except ManifestLost:
            self.is_lost = True
            raise

    def _delete(self, keys: Collection[str], is_current: Callable[[], bool]) -> bool:
        """Runs in a thread. Looks at the manifest again and again: one made anew may list these objects."""
        for number, key in enumerate(keys):
            if number % _DELETED_BETWEEN_LOOKS == 0 and not is_current():
                return False
            self._store.delete(key)
        return True

    async def replace(self, manifest: Manifest) -> bool:
        """Store a new version. False if somebody else has stored one since the last `read` or `replace`.

        A version of which the answer was lost counts as stored.
        """
        key, tag = manifest_key(self._topic_id, self._partition), self._tag
        self._tried.add(_version(manifest))
        try:
            self._tag = await self._threads.run(_put(self._store, key, manifest, tag))
        except (Conflict, Missing):
            if await self.read() != manifest:
                self._tag = tag  # whoever has not seen the other version does not replace it either
                return False
        self._tried.clear()  # none of the others can be stored any more
        return True


def _version(manifest: Manifest) -> _Version:
    return _Version(manifest.writer, manifest.version, manifest.start_offset, manifest.next_offset)


def _put(store: ObjectStore, key: str, manifest: Manifest, tag: str) -> Callable[[], str]:
    """For a thread: a long manifest takes a while to encode."""
    return lambda: store.put(key, encode_manifest(manifest), replaces=tag)
