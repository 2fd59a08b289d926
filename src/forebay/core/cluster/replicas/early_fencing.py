"""Decides if a broker that refuses connections may be counted as dead before its lease ends, and by whom.

Decided on an image. A refusal is strong evidence, but not proof: a firewall can refuse in the name of a
broker that is alive. So a verdict has to be harmless if it is wrong. The new leader is in sync, and the
broker registers again and follows. Where that is impossible there is no verdict, and the lease decides.
"""

from __future__ import annotations

from collections.abc import Container

from forebay.config import ControllerConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.replicas.controller import Decisions, may_be_unclean
from forebay.core.cluster.replicas.isr_changes import min_insync
from forebay.core.topic_partition import TopicPartition


def turn(image: ClusterImage, me: int, victim: int, refusing: Container[int]) -> int | None:
    """How many other brokers come before this one in ending the registration of another; None if it may not.

    The controller judges the others, and at once. The other brokers judge the controller, one after the other
    in the order of their ids; those that refuse connections themselves (`refusing`) are left out. If two try
    at the same time, the store lets only one succeed.
    """
    if me == victim or me not in image.brokers or victim not in image.brokers:
        return None
    if image.controller == me:
        return 0
    if image.controller != victim:
        return None
    line = sorted(each for each in image.brokers if each != victim and (each == me or each not in refusing))
    return line.index(me)


def obstacle(image: ClusterImage, victim: int, config: ControllerConfig) -> str | None:
    """The reason why this broker may be counted as dead only when its lease ends; None if there is none."""
    others = image.brokers.keys() - {victim}
    decisions = Decisions(others)
    for topic in image.topics.values():
        unclean = may_be_unclean(image, config, topic.name)
        minimum = min_insync(image, topic.name, config.min_insync_replicas)
        for state in topic.partitions:
            if state.leader in others or state.unreadable:
                continue
            if state.leader != victim and victim not in (*state.isr, *state.eligible):
                continue  # it cannot be the next leader either
            if unclean:
                return f"{topic.name}-{state.index} allows unclean elections"
            if decisions.leader(state, minimum=minimum) in (NO_LEADER, victim):
                return f"no other broker can lead {topic.name}-{state.index}"
    return None


def led_by(image: ClusterImage, broker_id: int) -> list[TopicPartition]:
    """The partitions that a broker leads."""
    return [
        (topic.name, state.index)
        for topic in image.topics.values()
        for state in topic.partitions
        if state.leader == broker_id
    ]


def last_led_by(image: ClusterImage, broker_id: int) -> TopicPartition | None:
    """The last partition that a broker leads, of those that the controller goes through in their order."""
    for topic in reversed(list(image.topics.values())):
        for state in reversed(topic.partitions):
            if state.leader == broker_id:
                return topic.name, state.index
    return None


def is_led_by(image: ClusterImage, broker_id: int, key: TopicPartition) -> bool:
    state = image.partition(*key)
    return state is not None and state.leader == broker_id
