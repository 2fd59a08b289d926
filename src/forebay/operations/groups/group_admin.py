"""Changes to consumer groups: their offsets, their members, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay.client.leaving import leave_group
from forebay.operations.client import REQUEST_SECONDS, Client, CommandError, settle
from forebay.operations.groups.group_lag import describe_group, group_state, word
from forebay.operations.groups.offset_reset import NewOffset

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_REASON = "an administrator has removed the member"


def refuse_active(admin: AdminClient, name: str) -> None:
    """Raises CommandError while members could commit over a reset."""
    found = describe_group(admin, name)
    state = group_state(found)
    if state not in ("Empty", "Dead"):
        raise CommandError(
            f"group {name} is {state} with {len(found.members)} members: stop its consumers first, "
            f"else they would commit over the reset"
        )


def alter_offsets(admin: AdminClient, name: str, planned: Sequence[NewOffset]) -> None:
    """Commit for a group. Raises CommandError with a line for each partition that was refused."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(each.topic, each.partition, each.new_offset) for each in planned]
    request = ConsumerGroupTopicPartitions(name, places)
    done = settle(admin.alter_consumer_group_offsets([request], request_timeout=REQUEST_SECONDS)[name])
    problems = [
        f"{place.topic}-{place.partition}: {place.error.str()}"
        for place in done.topic_partitions or ()
        if place.error is not None
    ]
    if problems:
        raise CommandError("\n".join(problems))


def remove_member(client: Client, admin: AdminClient, name: str, member_id: str) -> None:
    """End a membership. A consumer that is still alive notices it, and joins again as a new member."""
    found = describe_group(admin, name)
    if member_id not in {member.member_id for member in found.members}:
        raise CommandError(
            f"group {name} has no member {member_id}: `forebay group describe {name}` shows them"
        )
    protocol = "consumer" if word(found.type) == "Consumer" else "classic"
    settings = {**client.properties, "bootstrap.servers": client.bootstrap, "group.protocol": protocol}
    leave_group(settings, name, member_id, reason=_REASON)
