"""Mistakes with messages that are in an object store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay.broker.partition.remote_log import RemoteLog
from forebay.broker.tiers import leader_term, manifest_file
from forebay.broker.tiers.leader_term import LeaderTerm
from forebay.broker.tiers.uploads import Upload
from forebay.core.tiers.planning import Copy
from forebay.tiers.object_store import ObjectStore
from forebay.wire.tiers.manifest import Manifest, encode_manifest


def delete_local_segments_before_the_manifest_has_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteLog, "copied_to", property(lambda self: -1 if self.manifest is None else 2**62))


def write_manifests_over_those_of_others(patch: pytest.MonkeyPatch) -> None:
    def unfenced(store: ObjectStore, key: str, manifest: Manifest, _tag: str) -> Callable[[], str]:
        return lambda: store.put(key, encode_manifest(manifest))

    patch.setattr(manifest_file, "_put", unfenced)
    claimed = LeaderTerm._claimed

    def by_anybody(self: LeaderTerm, manifest: Manifest) -> Manifest:
        return claimed(self, manifest._replace(leader_epoch=-1))

    patch.setattr(LeaderTerm, "_claimed", by_anybody)


def serve_a_lost_history(patch: pytest.MonkeyPatch) -> None:
    """What was copied before an unclean election counts, whatever the new leader has."""
    patch.setattr(leader_term, "lost_from", lambda *_: None)


def copy_without_the_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    make = LeaderTerm._upload

    def without(self: LeaderTerm, copy: Copy) -> Upload:
        return make(self, copy)._replace(aborted=())

    patch.setattr(LeaderTerm, "_upload", without)
