"""Decides when messages that the leader of a partition has written are committed."""

from __future__ import annotations

from typing import NamedTuple

from forebay.config import TopicConfig
from forebay.core.partition.leadership import Leadership


class CommitRules(NamedTuple):
    enough_replicas: bool = False
    """True if as many replicas are in sync as min.insync.replicas demands for acks=all."""
    may_commit: bool = False
    """True if enough replicas are in sync for the high watermark to move."""
    at_once: bool = False
    """True if written messages are committed at once: no other replica is in sync, and none need be."""
    by_sync: bool = False
    """Like `at_once`, but only once they are synced."""


def commit_rules(leadership: Leadership | None, config: TopicConfig, *, syncs_alone: bool) -> CommitRules:
    """`syncs_alone`: if other replicas should have a message and none is in sync, it must be on disk."""
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
