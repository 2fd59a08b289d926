"""Keys of the store whose values this broker cannot read: damaged by hand, or written by a newer version.

An unreadable value is never taken for absence, because absence means deletion. Its content is unknown, so
whatever depends on it is out of service until the key is repaired or deleted. Everything else continues:

- a topic: its name stays taken, its logs stay where they are, and nobody leads its partitions;
- the state of a partition: nobody leads it, and no election or move is written;
- an ACL: the widest DENY rule that it may have been holds (`core/acls/doubt.py`);
- settings: those that delete nothing are in force (`SAFE_TOPIC_SETTINGS`, `SAFE_BROKER_SETTINGS`);
- a user or a delegation token cannot log in, a quota limits nobody, a view cannot be read;
- a broker counts as registered: nobody is elected in its place, nor is it elected itself.

The image is a function of what the store holds, so all brokers of a version see the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.core.acls.bindings import AclBinding
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass

SAFE_TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
"""In force while the settings of a topic cannot be read: nothing is deleted or compacted."""
SAFE_BROKER_SETTINGS: Mapping[str, str] = {
    "log.cleanup.policy": "delete",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
"""The same for settings of brokers. Settings of a single topic stay in force."""


_DIGITS_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    key: str
    """The path below the root of the cluster, such as acls/1f."""
    revision: int
    """The mod revision of the key."""
    reason: str
    denials: tuple[AclBinding, ...] = ()
    """For an ACL: the rules that hold in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadablePut:
    value: Unreadable


class UnreadableKeys:
    """The unreadable keys of an image, by type."""

    __slots__ = ("brokers", "by_key", "has_topics", "topics", "views")

    def __init__(self, by_key: Mapping[str, Unreadable]) -> None:
        self.by_key = by_key
        self.topics = _names(by_key, "topics/")
        self.has_topics = bool(self.topics)
        """Their ids are unknown: while this is True, no topic id can be said to be gone."""
        self.views = _names(by_key, "views/")
        self.brokers = frozenset(int(name) for name in _names(by_key, "brokers/") if _is_number(name))

    def __len__(self) -> int:
        return len(self.by_key)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def denials(self) -> dict[str, AclBinding]:
        """The rules that hold in place of unreadable ACLs, under ids that no rule has."""
        return {
            f"{each.key}#{number}": acl
            for each in self.by_key.values()
            for number, acl in enumerate(each.denials)
        }

    def check(self, key: str) -> None:
        """Refuse to overwrite an unreadable value. Raises KafkaError."""
        found = self.by_key.get(key)
        if found is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the stored {key} cannot be read and is not written over: repair or delete it in the store"
                " first (docs/operations.md)",
            )


def _names(by_key: Mapping[str, Unreadable], prefix: str) -> frozenset[str]:
    return frozenset(key[len(prefix) :] for key in by_key if key.startswith(prefix))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


NONE_UNREADABLE = UnreadableKeys({})
