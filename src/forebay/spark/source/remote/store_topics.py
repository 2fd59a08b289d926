"""Plans a batch from an object store alone: its brokers may be gone.

Topics are found by listing the store, or by their ids, which is quick where there are very many objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forebay.errors import ConfigError
from forebay.spark.source.offset_ranges import EARLIEST, LATEST, OffsetRange, TopicPartition
from forebay.spark.source.options import ReadOptions, Subscription
from forebay.spark.source.remote.access import Place
from forebay.spark.source.remote.planning import RemotePlan, read_plan
from forebay.tiers.object_store import ObjectStore
from forebay.tiers.reading import RemoteTopic, list_topics, partition_count, read_topic
from forebay.wire.tiers.manifest import Manifest

_ID = re.compile(r"[0-9a-f]{32}")


def plan_without_brokers(options: ReadOptions) -> tuple[list[OffsetRange], RemotePlan]:
    """The ranges of the subscribed topics that are in the store, within the offsets that were asked for."""
    remote = options.fetching.remote
    for position in (options.starting, options.ending):
        if position.is_timestamp:
            raise ConfigError(
                f"{position.option} needs kafka.bootstrap.servers; minTimestamp and maxTimestamp do not"
            )
    store = remote.open(remote.url)
    topics = _subscribed(store, options.subscription)
    places = [
        at
        for name, found in sorted(topics.items())
        for at in (TopicPartition(name, number) for number in range(partition_count(store, found)))
        if not options.subscription.partitions or at in options.subscription.partitions
    ]
    ids = {name: found.topic_id.hex() for name, found in topics.items()}
    plan = read_plan(remote, Place(remote.url, frozenset(places)), places, ids)
    return _ranges(options, places, plan), plan


def _ranges(options: ReadOptions, places: list[TopicPartition], plan: RemotePlan) -> list[OffsetRange]:
    start, end = options.starting.of(places), options.ending.of(places)
    low, high = options.selection.offsets.low, options.selection.offsets.high
    found = []
    for at, manifest in plan.manifests.items():
        if options.selection.includes(at):
            first = max(_offset(start[at], manifest), low or 0)
            last = _offset(end[at], manifest)
            found.append(OffsetRange(at, first, last if high is None else min(last, high + 1)))
    return found


def _offset(given: int, manifest: Manifest) -> int:
    return {EARLIEST: manifest.first_offset, LATEST: manifest.next_offset}.get(given, given)


def _subscribed(store: ObjectStore, subscription: Subscription) -> dict[str, RemoteTopic]:
    """By name; ConfigError if one is missing, or if there are two of that name."""
    found: dict[str, RemoteTopic] = {}
    for topic in _candidates(store, subscription):
        known = found.setdefault(topic.name, topic)
        if known.topic_id != topic.topic_id:
            raise ConfigError(
                f"{store.url} has two topics {topic.name}, one of which was made anew: subscribe to the id of"
                f" one of them, {known.topic_id.hex()} or {topic.topic_id.hex()}"
            )
    there = found.keys() | {topic.topic_id.hex() for topic in found.values()}
    wanted = {*subscription.topics, *(at.topic for at in subscription.partitions)}
    if missing := sorted(wanted - there):
        raise ConfigError(f"{store.url} has no topic {', '.join(missing)}")
    return found


def _candidates(store: ObjectStore, subscription: Subscription) -> Iterator[RemoteTopic]:
    ids = {name for name in subscription.topics if _ID.fullmatch(name)}
    for topic_id in sorted(ids):
        topic = read_topic(store, bytes.fromhex(topic_id))
        if topic is not None:
            yield topic
    names = {*subscription.topics, *(at.topic for at in subscription.partitions)} - ids
    pattern = re.compile(subscription.pattern) if subscription.pattern else None
    if names or pattern is not None:
        for topic in list_topics(store):
            if topic.name in names or (pattern is not None and pattern.fullmatch(topic.name)):
                yield topic
