"""OffsetCommit in __consumer_offsets: a group's position in one partition."""

from __future__ import annotations

from forebay.wire.fields import Message, int32, int64, string, uuid


class OffsetCommitKey(Message, versions=(0, 1)):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)
