"""When what the leader of a partition has written is committed."""

from __future__ import annotations

from typing import NamedTuple

from forebay.config import TopicConfig
from forebay.core.partition.leadership import Leadership


class CommitRules(NamedTuple):
    enough_replicas: bool = False
    """Whether as many replicas are in sync as min.insync.replicas asks for acks=all."""
    may_commit: bool = False
    """Whether the in-sync replicas are enough for the high watermark to move."""
    at_once: bool = False
    """Whether what is written is committed: no other replica is in sync, and none need be."""
    by_sync: bool = False
    """The same, but only once it is synced."""


def commit_rules(leadership: Leadership | None, config: TopicConfig, *, syncs_alone: bool) -> CommitRules:
    """`syncs_alone`: where other replicas should have a message and none is in sync, the disk must."""
    if leadership is None:
        return CommitRules()
    may_commit = leadership.may_commit(config.min_insync_replicas)
    only_copy = may_commit and leadership.only_copy
    by_sync = only_copy and syncs_alone and len(leadership.state.replicas) > 1
    return CommitRules(
        enough_replicas=len(leadership.isr) >= config.insync_replicas_min(len(leadership.state.original)),
        may_commit=may_commit,
        at_once=only_copy and leadership.alone and not by_sync,
        by_sync=by_sync,
    )
