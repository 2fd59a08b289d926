"""Mistakes with messages that are in an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from forebay.broker.fetch.view_read import ViewRead
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.remote_log import RemoteLog
from forebay.broker.shares.requests import acquiring
from forebay.broker.tiers.leader_term import LeaderTerm
from forebay.broker.tiers.manifests import manifest_file
from forebay.broker.tiers.manifests.manifest_file import ManifestFile
from forebay.broker.tiers.manifests.term_manifest import TermManifest
from forebay.broker.tiers.missed_chunk import ChunkRange
from forebay.broker.tiers.uploads import Upload
from forebay.core.tiers import claiming
from forebay.core.tiers.planning import Copy
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.tiers.object_store import ManifestLost, ObjectStore
from forebay.wire.tiers.manifest import Manifest, encode_manifest
from forebay.wire.tiers.segment_object import AbortedSpan


def delete_local_segments_before_the_manifest_has_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteLog, "copied_to", property(lambda self: -1 if self.manifest is None else 2**62))


def write_manifests_over_those_of_others(patch: pytest.MonkeyPatch) -> None:
    def unfenced(store: ObjectStore, key: str, manifest: Manifest, _tag: str) -> Callable[[], str]:
        return lambda: store.put(key, encode_manifest(manifest))

    patch.setattr(manifest_file, "_put", unfenced)
    claimed = TermManifest.claimed

    def by_anybody(self: TermManifest, manifest: Manifest) -> Manifest:
        return claimed(self, manifest._replace(leader_epoch=-1))

    patch.setattr(TermManifest, "claimed", by_anybody)


def take_lost_manifests_for_none(patch: pytest.MonkeyPatch) -> None:
    """A manifest that is not there was never there."""
    look = ManifestFile._look

    async def found_or_none(self: ManifestFile, look_at: Callable[[], Any]) -> Any:
        try:
            return await look(self, look_at)
        except ManifestLost:
            return None

    patch.setattr(ManifestFile, "_look", found_or_none)


def serve_a_lost_history(patch: pytest.MonkeyPatch) -> None:
    """What was copied before an unclean election counts, whatever the new leader has."""
    patch.setattr(claiming, "lost_from", lambda *_: None)


def copy_without_the_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    make = LeaderTerm._upload

    def without(self: LeaderTerm, copy: Copy) -> Upload:
        return make(self, copy)._replace(aborted=())

    patch.setattr(LeaderTerm, "_upload", without)


def begin_share_groups_at_the_local_log(patch: pytest.MonkeyPatch) -> None:
    """What has left the disk counts as deleted."""
    patch.setattr(Partition, "known_start_offset", property(lambda self: self.log.start_offset))


def show_aborted_messages_from_the_store(patch: pytest.MonkeyPatch) -> None:
    """Readers of views, and share groups, are not told of aborted transactions there."""
    noted, looked_up = ViewRead.note_aborted, acquiring._aborted

    def note_local(self: ViewRead, aborted: Iterable[acquiring.Aborted]) -> None:
        noted(self, [each for each in aborted if not isinstance(each, AbortedSpan)])

    def look_up_local(
        partition: Partition, part: LogSlice, offset: int, end: int
    ) -> Sequence[acquiring.Aborted]:
        return () if isinstance(part.range, ChunkRange) else looked_up(partition, part, offset, end)

    patch.setattr(ViewRead, "note_aborted", note_local)
    patch.setattr(acquiring, "_aborted", look_up_local)
