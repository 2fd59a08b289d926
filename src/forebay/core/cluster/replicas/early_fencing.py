"""Whether a broker that refuses connections may be counted as dead before its lease ends, and by whom.

Decided on an image. A refusal is strong evidence, but no certainty: a firewall can refuse in the name of a
broker that is alive. So a verdict has to be harmless if it is wrong. Whoever takes over is in sync, and the
broker registers again and follows. Where that could not be so there is no verdict, and the lease decides.
"""

from __future__ import annotations

from collections.abc import Container

from forebay.config import ControllerConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.replicas.controller import may_be_unclean, settle
from forebay.core.cluster.replicas.isr_changes import min_insync


def turn(image: ClusterImage, me: int, victim: int, refusing: Container[int]) -> int | None:
    """How many others have their turn before this broker may end the registration of another; None if it is
    not its business.

    The controller judges the others, and at once. The other brokers judge the controller, one after the other
    in the order of their ids; those that refuse connections themselves (`refusing`) are left out. If two
    should do it at the same time, the store lets one of them.
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
    """Why this broker may be counted as dead only when its lease ends; None if nothing is in the way."""
    others = image.brokers.keys() - {victim}
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader in others or state.unreadable:
                continue
            if state.leader != victim and victim not in (*state.isr, *state.eligible):
                continue  # it cannot be the next leader either
            if may_be_unclean(image, config, topic.name):
                return f"{topic.name}-{state.index} allows unclean elections"
            minimum = min_insync(image, topic.name, config.min_insync_replicas)
            if settle(state, others, minimum=minimum).leader in (NO_LEADER, victim):
                return f"no other broker can lead {topic.name}-{state.index}"
    return None


def leads(image: ClusterImage, broker_id: int) -> int:
    """How many partitions a broker leads."""
    return sum(state.leader == broker_id for topic in image.topics.values() for state in topic.partitions)
