"""Every setting of a topic, and the broker settings that it falls back to.

`fallbacks` lists broker keys in order of precedence, each with the factor that turns its unit into the
topic's: a topic without retention.ms takes log.retention.ms, else .minutes, else .hours. A few settings are a
topic's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forebay.config.keys.broker import BROKER_KEYS
from forebay.config.keys.ignored import IGNORED_TOPIC_FALLBACKS, IGNORED_TOPIC_KEYS
from forebay.config.values import LONG_MAX, Definition, Value, bool_key, list_key, long_key
from forebay.lazy import dataclass

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
ALL_REPLICAS = ("*",)
MIN_INSYNC_REPLICAS = "min.insync.replicas"
_TIMESTAMP_DIFFERENCE = "message.timestamp.difference.max.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKey:
    definition: Definition
    attribute: str | None
    """The attribute of TopicConfig; None for a setting without effect, or with one elsewhere."""
    fallbacks: tuple[tuple[str, int], ...]
    stand_in: str | None = None
    """Another setting of the topic, which applies if this one is not given."""

    def given(self, overrides: Mapping[str, str]) -> tuple[str, str] | None:
        """The topic's own setting that decides, with its text; None if the broker's does."""
        name = self.definition.name
        if name in overrides:
            return name, overrides[name]
        if self.stand_in is None or self.stand_in not in overrides:
            return None
        text = overrides[self.stand_in]
        other = TOPIC_KEYS[self.stand_in].definition
        return None if other.parse(text) == other.default else (self.stand_in, text)

    def from_broker(self, value: Value, factor: int) -> Value:
        """A broker's value in the topic's unit; a negative value means no limit, in every unit."""
        if factor == 1 or not isinstance(value, int):
            return value
        return -1 if value < 0 else min(value * factor, LONG_MAX)


def _key(name: str, *fallbacks: str | tuple[str, int], stand_in: str | None = None) -> TopicKey:
    pairs = tuple((item, 1) if isinstance(item, str) else item for item in fallbacks)
    definition = replace(BROKER_KEYS[pairs[0][0]], name=name, default=None, dynamic=True)
    attribute = name.replace(".", "_")
    return TopicKey(definition=definition, attribute=attribute, fallbacks=pairs, stand_in=stand_in)


def _ignored(definition: Definition) -> TopicKey:
    fallback = IGNORED_TOPIC_FALLBACKS.get(definition.name)
    return TopicKey(
        definition=definition, attribute=None, fallbacks=() if fallback is None else ((fallback, 1),)
    )


def _throttled(name: str, attribute: str, who: str) -> TopicKey:
    definition = list_key(
        name,
        (),
        f"Which replicas {who}.replication.throttled.rate is for, as partition:broker, or * for all;"
        " with none named it is for every replica that is catching up.",
        validate=_named_replicas,
        dynamic=True,
    )
    return TopicKey(definition=definition, attribute=attribute, fallbacks=())


def _named_replicas(value: Value) -> None:
    assert isinstance(value, tuple)
    for item in value:
        partition, _, broker = item.partition(":")
        if value != ALL_REPLICAS and not (partition.isdigit() and broker.isdigit()):
            raise ValueError(f"{item!r} is no replica, use partition:broker pairs such as 0:1,1:2, or *")


_KEYS = (
    _key("cleanup.policy", "log.cleanup.policy"),
    _key("compression.type", "compression.type"),
    _key("compression.gzip.level", "compression.gzip.level"),
    _key("compression.lz4.level", "compression.lz4.level"),
    _key("compression.zstd.level", "compression.zstd.level"),
    _key("max.message.bytes", "message.max.bytes"),
    _key("message.timestamp.type", "log.message.timestamp.type"),
    _key(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        stand_in=_TIMESTAMP_DIFFERENCE,
    ),
    _key(
        "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", stand_in=_TIMESTAMP_DIFFERENCE
    ),
    TopicKey(
        definition=long_key(
            _TIMESTAMP_DIFFERENCE,
            LONG_MAX,
            "Stands for message.timestamp.before.max.ms and message.timestamp.after.max.ms where they are "
            "not set; Kafka 4.0 has removed it.",
            0,
            dynamic=True,
        ),
        attribute=None,
        fallbacks=(),
    ),
    _key(
        "retention.ms",
        "log.retention.ms",
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    _key("retention.bytes", "log.retention.bytes"),
    _key("local.retention.ms", "log.local.retention.ms"),
    _key("local.retention.bytes", "log.local.retention.bytes"),
    TopicKey(
        definition=bool_key(
            "remote.storage.enable",
            False,
            "Whether closed segments are copied to the object store (forebay.remote.url). It cannot be taken "
            "back. Not for compacted topics.",
            dynamic=True,
        ),
        attribute="remote_storage_enable",
        fallbacks=(),
    ),
    TopicKey(
        definition=bool_key(
            "remote.log.copy.disable",
            False,
            "Copy no more segments to the object store. What is there stays readable.",
            dynamic=True,
        ),
        attribute="remote_copy_disable",
        fallbacks=(),
    ),
    _key("segment.bytes", "log.segment.bytes"),
    _key("segment.ms", "log.roll.ms", ("log.roll.hours", _HOUR_MS)),
    _key("segment.jitter.ms", "log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR_MS)),
    _key("index.interval.bytes", "log.index.interval.bytes"),
    _key("segment.index.bytes", "log.index.size.max.bytes"),
    _key("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _key("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _key("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _key("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _key("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _key(MIN_INSYNC_REPLICAS, MIN_INSYNC_REPLICAS),
    _key("unclean.leader.election.enable", "unclean.leader.election.enable"),
    TopicKey(
        definition=bool_key(
            "errors.deadletterqueue.group.enable",
            False,
            "Whether share groups may name this topic as their dead-letter topic.",
            dynamic=True,
        ),
        attribute="takes_dead_letters",
        fallbacks=(),
    ),
    TopicKey(
        definition=long_key(
            "forebay.delay.ms",
            0,
            "How long after its timestamp a message becomes visible to consumers. Messages become visible in "
            "the order of their offsets.",
            0,
            dynamic=True,
        ),
        attribute="delay_ms",
        fallbacks=(),
    ),
    TopicKey(
        definition=bool_key(
            "forebay.delay.enable",
            False,
            "Whether messages can ask to be delivered later, with the headers forebay-deliver-at and "
            "forebay-deliver-after. Off, such headers mean nothing; what waits already is still delivered.",
            dynamic=True,
        ),
        attribute="delay_enable",
        fallbacks=(),
    ),
    TopicKey(
        definition=long_key(
            "forebay.delay.max.ms",
            30 * 24 * _HOUR_MS,
            "How far ahead the time of delivery of a message may lie.",
            0,
            dynamic=True,
        ),
        attribute="delay_max_ms",
        fallbacks=(),
    ),
    TopicKey(
        definition=long_key(
            "forebay.delay.pending.max",
            10_000_000,
            "How many messages of one partition may wait for their time.",
            0,
            dynamic=True,
        ),
        attribute="delay_pending_max",
        fallbacks=(),
    ),
    _throttled("leader.replication.throttled.replicas", "leader_throttled_replicas", "leader"),
    _throttled("follower.replication.throttled.replicas", "follower_throttled_replicas", "follower"),
    *(_ignored(definition) for definition in IGNORED_TOPIC_KEYS),
)

TOPIC_KEYS: dict[str, TopicKey] = {key.definition.name: key for key in _KEYS}
