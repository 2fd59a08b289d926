"""Elections on request (ElectLeaders), decided on an image: of preferred replicas, or unclean ones.

The controller decides all other elections (`controller.py`): a broker went away, or leads too few of the
partitions whose preferred leader it is.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.replicas.controller import can_lead, desired_state, lead
from forebay.core.cluster.replicas.isr_changes import MAJORITY, min_insync
from forebay.core.cluster.replicas.restored_partitions import ClaimBook, elect_by_claims
from forebay.core.cluster.topics.topic_requests import existing_partition
from forebay.errors import ErrorCode, KafkaError


def elect(
    image: ClusterImage,
    topic: str,
    partition: int,
    *,
    unclean: bool = False,
    min_insync_replicas: int = MAJORITY,
    claims_in: Callable[[ClusterImage], ClaimBook] = ClaimBook,
) -> list[PartitionPut]:
    """Let the preferred replica lead; or with `unclean`, any replica that is left, if there is no leader.

    `claims_in`: for elections of many partitions, a book that is built once (`LastClaimBook`).
    """
    owner, state = existing_partition(image, topic, partition)
    minimum = min_insync(image, topic, min_insync_replicas)
    if unclean and state.unsettled and not image.restore.is_readable:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "the marker of the store's last restore cannot be read; brokers are about to write a new one",
        )
    if unclean and state.unsettled:
        after = elect_by_claims(state, (owner.topic_id, partition), claims_in(image))
        if after is state:
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"the store was restored, and no broker has reported what it holds of {topic}-{partition}",
            )
        return [PartitionPut(topic_id=owner.topic_id, state=after)]
    after = _elect_any(image, state, minimum) if unclean else _elect_first(image, state)
    return [PartitionPut(topic_id=owner.topic_id, state=after)]


class LastClaimBook:
    """The claim book of an image, kept until another image is asked for."""

    def __init__(self) -> None:
        self._book: ClaimBook | None = None

    def __call__(self, image: ClusterImage) -> ClaimBook:
        if self._book is None or self._book.image is not image:
            self._book = ClaimBook(image)
        return self._book


def _elect_first(image: ClusterImage, state: PartitionState) -> PartitionState:
    first = state.replicas[0]
    if state.leader == first:
        raise _not_needed(f"broker {first} leads already")
    if not can_lead(state, first, image.brokers):
        problem = "not in sync" if first in image.brokers else "not alive"
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"the first replica, broker {first}, is {problem}"
        )
    return lead(state, first)


def _elect_any(image: ClusterImage, state: PartitionState, minimum: int) -> PartitionState:
    if can_lead(state, state.leader, image.brokers):
        raise _not_needed(f"broker {state.leader} leads")
    after = desired_state(state, image.brokers, unclean=True, minimum=minimum)
    if after.leader == NO_LEADER:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(state.replicas)} is alive",
        )
    return after


def _not_needed(message: str) -> KafkaError:
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, message)
