"""Partitions that a leader refuses to a follower for reasons that pass: brokers get a new image at different
times. Until then the partition is left out of the fetches, for a short pause at first, because messages may
wait for this follower."""

from __future__ import annotations

from forebay.errors import ErrorCode, KafkaError

_PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors of a leader whose image is newer or older than the follower's."""

_FIRST_PAUSE_S = 0.02
"""Each later pause is as long as all before it together."""

Key = tuple[bytes, int]


class RefusedPartitions:
    def __init__(self) -> None:
        self._since_s: dict[Key, float] = {}

    def refused(self, key: Key, error: Exception, now_s: float) -> float | None:
        """How long the partition has been refused; None if the reason is not one that passes."""
        if not isinstance(error, KafkaError) or error.code not in _PASSING:
            return None
        return now_s - self._since_s.setdefault(key, now_s)

    def forget(self, key: Key) -> None:
        """It is served again, or not followed any more."""
        if self._since_s:
            self._since_s.pop(key, None)

    def pause_s(self, key: Key, now_s: float, backoff_s: float) -> float:
        """How long to leave it out; after any other failure that is `backoff_s`."""
        since_s = self._since_s.get(key)
        return backoff_s if since_s is None else min(max(_FIRST_PAUSE_S, now_s - since_s), backoff_s)
