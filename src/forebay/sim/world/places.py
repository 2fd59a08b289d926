"""The topics and partitions of a story."""

from __future__ import annotations

from forebay.core.topic_partition import TopicPartition

TOPICS = {
    "exact": 2,
    "plain": 1,
    "loose": 1,
    "source": 1,
    "target": 1,
    "brief": 1,
    "keyed": 1,
    "jobs": 2,
}
EXACT: list[TopicPartition] = [("exact", 0), ("exact", 1)]
SOURCE: TopicPartition = ("source", 0)
TARGET: TopicPartition = ("target", 0)
PLAIN: TopicPartition = ("plain", 0)
BRIEF: TopicPartition = ("brief", 0)
"""Retention deletes its oldest messages; no other topic loses any."""
LOOSE: TopicPartition = ("loose", 0)
JOBS: list[TopicPartition] = [("jobs", 0), ("jobs", 1)]
"""For the share group."""
SURE: list[TopicPartition] = [*EXACT, PLAIN, SOURCE, TARGET, BRIEF, *JOBS]
"""A message here is acknowledged only when all in-sync replicas have it."""
ALL: list[TopicPartition] = [*SURE, LOOSE]
KEYED: TopicPartition = ("keyed", 0)
"""Compacted all the time, in segments of a few batches: only the last message of each key is sure to stay."""

GROUP_NAME = "crew"
SHARED: list[TopicPartition] = [*EXACT, SOURCE]
"""The partitions that the members of the group share: all of their topics."""

SHARE_GROUP_NAME = "workers"
SHARE_STATES: list[TopicPartition] = [("__share_group_state", 0), ("__share_group_state", 1)]
"""Where the state of share groups is kept."""
DEAD_LETTER_TOPIC = "jobs.dead"
"""For records that the share group gives up. Brokers create it."""

LATER: TopicPartition = ("later", 0)
"""Only in some stories: its messages are visible when they are `LATER_DELAY_MS` old."""
LATER_DELAY_MS = 2_000

FOLDED: list[TopicPartition] = [("folding", index) for index in range(4)]
"""Only in some stories: the topic gets fewer partitions, `FOLDED_TO` instead of all of these."""
FOLDED_TO = 2
FOLDED_KEYS: list[TopicPartition] = [("folding-keys", index) for index in range(4)]
"""The same for a compacted topic."""

VIEWS = {"shown-exact": "exact", "shown-plain": "plain"}
"""Only in some stories: views, and the topics that they show."""
SHOWN: list[TopicPartition] = [("shown-exact", 0), ("shown-exact", 1), ("shown-plain", 0)]
FILLS = {"filled-exact": "exact", "filled-plain": "plain"}
"""Only in some stories: materialized views, and the topics that they are filled from."""
FILLED: list[TopicPartition] = [("filled-exact", 0), ("filled-exact", 1), ("filled-plain", 0)]
SHOWN_EVERY = 3
"""A view shows the offsets that this number divides."""
ALARMS: TopicPartition = ("alarms", 0)
"""Only in some stories: its messages have their own delays."""
