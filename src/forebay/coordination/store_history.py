"""Checks that the contents of a store can follow its earlier contents.

A store shows its identity with each answer (`store_identity.py`). This checks the contents, for cases that
the identity does not reveal: the keys of the cluster were deleted or replaced in the same etcd, or a backup
was restored and has been written to since, so that its revision is higher again.

A key that was last changed at a revision which the image in use has seen must be in it, at that very
revision. Otherwise the two have different histories. The state of a partition must not be missing either: it
is only deleted with its topic, or when the topic gets another number of partitions. Nor must the counter of
producer ids, which no broker deletes. Keys that the image in use could not read are left out.

Registrations are under leases, which end in a restored backup, too: what they prove is soon gone. So the
evidence of each broker is compared, a key under no lease that it writes after it has joined.

A topic may be missing although no tombstone says that it was deleted: brokers of earlier versions write none.
But once a store has been seen to go back, that is not accepted any more until its contents prove its
identity: others may have written to it meanwhile, so its revision alone proves nothing. A restore marker,
written by another broker, shows it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from forebay.coordination.keys import Keys
from forebay.coordination.store import Event, EventKind, MismatchReason
from forebay.coordination.store_identity import mismatch
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import ConfigOwner


class _Stored(Protocol):
    @property
    def revision(self) -> int: ...


def check_image(before: ClusterImage, after: ClusterImage, *, strict: bool = False) -> None:
    """Raises StoreMismatch if an image that was loaded after another cannot be newer than that one.

    `strict`: the store was seen to go back, so no topic may be missing without a tombstone.
    """
    _check_cluster(before.cluster_id, after.cluster_id)
    if after.revision < before.revision:
        raise mismatch(
            MismatchReason.WENT_BACK,
            f"the store is at revision {after.revision}, and was at {before.revision} before",
        )
    contradiction = next(_contradictions(before, after), None)
    if contradiction is None and (strict or before.restore.id != after.restore.id):
        contradiction = next(_missing(before, after), None)
    if contradiction is not None:
        raise mismatch(
            MismatchReason.WENT_BACK,
            f"the store has another history than at revision {before.revision}: {contradiction}",
        )


def check_events(keys: Keys, cluster_id: str, events: Iterable[Event]) -> None:
    """Raises StoreMismatch if the cluster itself was deleted, or is another one from now on."""
    for event in events:
        if event.kv.key == keys.cluster_id:
            _check_cluster(cluster_id, event.kv.value.decode() if event.kind is EventKind.PUT else "")


def _check_cluster(known: str, found: str) -> None:
    if known and known != found:
        has = f"has the cluster.id {found}" if found else "does not have this cluster (any more)"
        raise mismatch(
            MismatchReason.ANOTHER_STORE,
            f"the store {has}, and this broker belongs to the cluster.id {known}",
        )


def _contradictions(before: ClusterImage, after: ClusterImage) -> Iterator[str]:
    seen, unreadable = before.revision, before.unreadable
    counted = after.producer_ids_revision
    if counted <= seen and counted != before.producer_ids_revision:
        yield f"producer ids were last taken at revision {counted}, not {before.producer_ids_revision}"
    for number, revision in after.evidence.items():
        if revision <= seen and revision != before.evidence.get(number):
            yield f"broker {number} last wrote its evidence of the store at revision {revision}"
    for number, broker in after.brokers.items():
        if number in unreadable.brokers:
            continue
        known = before.brokers.get(number)
        if broker.epoch <= seen and (known is None or known.epoch != broker.epoch):
            yield f"broker {number} was registered at revision {broker.epoch}"
    for owner in ConfigOwner:
        for name, config in after.configs(owner).items():
            if config.revision <= seen and before.config(owner, name).revision != config.revision:
                yield f"the settings of {name!r} were changed at revision {config.revision}"
    yield from _changed_in_the_past(before, after)
    for name, topic in after.topics.items():
        former = before.topics.get(name)
        if former is topic or name in unreadable.topics:
            continue
        if topic.revision <= seen and (former is None or former.revision != topic.revision):
            yield f"topic {name!r} was changed at revision {topic.revision}"
        for state in topic.partitions:
            was = None if former is None else former.partitions[state.index : state.index + 1]
            epoch = state.partition_epoch
            if state.unreadable or (was and was[0].unreadable):
                continue
            if 0 < epoch <= seen and (not was or was[0].partition_epoch != epoch):
                yield f"partition {name}-{state.index} was changed at revision {epoch}"
            is_same_topic = former is not None and former.revision == topic.revision
            if is_same_topic and was and epoch < was[0].partition_epoch:
                yield f"partition {name}-{state.index} has lost its change at {was[0].partition_epoch}"


def _changed_in_the_past(before: ClusterImage, after: ClusterImage) -> Iterator[str]:
    """Values that were changed at a revision that `before` has seen, and are not in it as of then."""
    kinds: tuple[tuple[str, Mapping[str, _Stored], Mapping[str, _Stored]], ...] = (
        ("user", before.users, after.users),
        ("delegation token", before.tokens, after.tokens),
        ("quota", before.quotas, after.quotas),
        ("view", before.views, after.views),
        ("materialized view", before.fills, after.fills),
    )
    unreadable = {each.revision for each in before.unreadable.by_key.values()}
    for kind, known, found in kinds:
        for name, value in found.items():
            former = known.get(name)
            is_old = value.revision <= before.revision and value.revision not in unreadable
            if is_old and (former is None or former.revision != value.revision):
                yield f"{kind} {name!r} was changed at revision {value.revision}"


def _missing(before: ClusterImage, after: ClusterImage) -> Iterator[str]:
    for topic_id, name in before.topic_names.items():
        gone = topic_id not in after.topic_names and name not in after.unreadable.topics
        if gone and topic_id not in after.deleted:
            yield f"topic {name!r} is not there, and was not deleted"
