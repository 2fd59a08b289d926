"""The settings of the share group that reads a queue. They belong to the group, not to the client.

Only values that differ from those in force are written. So a program without the right to change them can use
a group that was set up before.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.client.admin import Admin
from forebay.client.errors import ClientError
from forebay.client.presets import Start
from forebay.errors import ConfigError
from forebay.lazy import dataclass

_START = "share.auto.offset.reset"
_LOCK = "share.record.lock.duration.ms"
_LIMIT = "share.delivery.count.limit"
_BACKOFF = "forebay.share.retry.backoff.ms"
_BACKOFF_MAX = "forebay.share.retry.backoff.max.ms"
_RECORD_LIMIT = "forebay.share.record.limit.enable"
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"
_TAKES_DEAD_LETTERS = "errors.deadletterqueue.group.enable"
_DEAD_LETTER_COPY = "errors.deadletterqueue.copy.record.enable"

DEFAULT_LOCK_SECONDS = 30.0
_BACKOFF_MAX_DEFAULT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """A value of None leaves the group's setting unchanged."""

    start: Start | None = "earliest"
    """Where the group begins in a partition that is new to it."""
    lock_seconds: float | None = None
    """How long a message may be held before it is delivered again."""
    delivery_limit: int | None = None
    """How often a message is delivered before it is given up."""
    retry_backoff_seconds: float | None = None
    """The wait after a message's first release; twice as long after each further one. Forebay only."""
    dead_letter_topic: str | None = None
    """The topic for messages, with key, value and headers, that were rejected or delivered too often."""

    def __post_init__(self) -> None:
        if self.start not in (None, "earliest", "latest"):
            raise ConfigError(f"start={self.start!r}: write 'earliest' or 'latest'")
        for name in ("lock_seconds", "delivery_limit"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name}={value}: write a number above 0")
        if self.retry_backoff_seconds is not None and self.retry_backoff_seconds < 0:
            raise ConfigError(f"retry_backoff_seconds={self.retry_backoff_seconds}: write 0 or more")

    def config(self) -> dict[str, str]:
        """The values by the names of the group's settings."""
        chosen: dict[str, str | None] = {
            _START: self.start,
            _LOCK: _milliseconds(self.lock_seconds),
            _LIMIT: None if self.delivery_limit is None else str(self.delivery_limit),
            _BACKOFF: _milliseconds(self.retry_backoff_seconds),
            _DEAD_LETTERS: self.dead_letter_topic,
            _DEAD_LETTER_COPY: "true" if self.dead_letter_topic else None,
        }
        return {name: value for name, value in chosen.items() if value is not None}


def changes(wanted: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """The settings to write, so that the wanted ones are in force. `current`: all that the broker knows."""
    unknown = sorted(wanted.keys() - current.keys())
    if unknown:
        raise ClientError(f"the broker has no setting {unknown[0]} for groups: leave the argument for it out")
    chosen = dict(wanted)
    if _RECORD_LIMIT in current:
        # Otherwise librdkafka gets whole batches, and one worker holds messages that others could process.
        chosen[_RECORD_LIMIT] = "true"
    if int(chosen.get(_BACKOFF, 0)) > int(current.get(_BACKOFF_MAX) or _BACKOFF_MAX_DEFAULT_MS):
        chosen[_BACKOFF_MAX] = chosen[_BACKOFF]
    return {name: value for name, value in chosen.items() if current[name] != value}


def prepare(admin: Admin, topic: str, group: str, settings: QueueSettings) -> float:
    """Check that the topic exists and apply the group's settings; returns the lock time in seconds."""
    if topic not in admin.topics():
        raise ClientError(f"there is no topic {topic!r}: create it first, with Admin.create_topic({topic!r})")
    if settings.dead_letter_topic is not None:
        _prepare_dead_letters(admin, settings.dead_letter_topic)
    current = admin.group_config(group)
    written = changes(settings.config(), current)
    if written:
        admin.set_group_config(group, written)
    lock_ms = written.get(_LOCK) or current.get(_LOCK)
    return float(lock_ms) / 1000 if lock_ms else DEFAULT_LOCK_SECONDS


def _prepare_dead_letters(admin: Admin, topic: str) -> None:
    """Allow dead letters in the topic's settings: brokers require it, to avoid letters by mistake."""
    if topic not in admin.topics():
        admin.create_topic(topic, config={_TAKES_DEAD_LETTERS: "true"}, exist_ok=True)
    elif admin.topic_config(topic).get(_TAKES_DEAD_LETTERS) != "true":
        raise ClientError(f"the topic {topic!r} takes no dead letters: set {_TAKES_DEAD_LETTERS}=true for it")


def _milliseconds(seconds: float | None) -> str | None:
    return None if seconds is None else str(round(seconds * 1000))
