"""The list of consumer groups. Share groups have a page of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.console.watch.message_times import Waiting
from forebay.console.watch.snapshot import GroupSeen, Snapshot
from forebay.console.web.asking import Ask
from forebay.console.web.page import Page
from forebay.console.web.paging import ROWS_MAX, page_of
from forebay.operations.client import REQUEST_SECONDS, CommandError, settle
from forebay.operations.messages.log_offsets import Place

PAGE = Page()

_TOPICS_SHOWN = 3
_AGES_PER_GROUP = 3
"""The list tells the age of the oldest message in the partitions with the largest lag."""


@PAGE.get("/groups")
def groups(ask: Ask) -> dict[str, Any]:
    return list_of(ask, lambda group: group.kind != "share")


def list_of(ask: Ask, is_shown: Callable[[GroupSeen], bool]) -> dict[str, Any]:
    """A page of the groups of some kind."""
    return page_of(
        ask,
        [group for group in ask.cluster.snapshot().groups.values() if is_shown(group)],
        name=lambda group: group.name,
        columns={
            "name": lambda group: group.name,
            "state": lambda group: group.state,
            "lag": lambda group: group.lag,
            "topics": lambda group: len(group.topics),
            "partitions": lambda group: len(group.offsets),
        },
        default="name",
        show=group_row,
    )


def group_row(group: GroupSeen) -> dict[str, Any]:
    topics = sorted(group.topics)
    return {
        "name": group.name,
        "kind": group.kind,
        "spark": group.is_spark,
        "state": group.state,
        "lag": group.lag,
        "behind": sum(lag > 0 for lag in group.lags.values()),
        "partitions": len(group.offsets),
        "topics": topics[:_TOPICS_SHOWN],
        "topics_all": len(topics),
        "coordinator": group.coordinator,
    }


@PAGE.get("/more-of-groups")
def more(ask: Ask) -> dict[str, Any]:
    """Ask the brokers for more: members, protocol and lag in seconds of the groups in `names`."""
    picture = ask.cluster.snapshot()
    wanted = [name for name in ask.text("names").split("\n") if name in picture.groups][:ROWS_MAX]
    seconds = ages_of(ask, {name: most_lagging(picture, picture.groups[name]) for name in wanted})
    ask.cluster.watcher.complete_history(
        {f"seconds:{name}": age for name, age in seconds.items() if age is not None}
    )
    found = {name: {"seconds": seconds.get(name), "members": None, "protocol": None} for name in wanted}
    admin = ask.cluster.admin()
    futures = admin.describe_consumer_groups(wanted, request_timeout=REQUEST_SECONDS) if wanted else {}
    for name, future in futures.items():
        try:
            described = settle(future)
        except CommandError:
            continue  # deleted meanwhile, or this user may not see it
        found[name] |= {"members": len(described.members), "protocol": described.partition_assignor or None}
    return found


def unread(picture: Snapshot, group: GroupSeen) -> dict[Place, int]:
    """The first unread offset of each partition in which the group is behind."""
    starts = {
        (topic, part.index): part.start or 0
        for topic in group.topics
        if topic in picture.topics
        for part in picture.topics[topic].partitions
    }
    return {
        place: max(group.offsets[place], starts.get(place, 0)) for place, lag in group.lags.items() if lag
    }


def most_lagging(picture: Snapshot, group: GroupSeen) -> list[Waiting]:
    first = unread(picture, group)
    return [(place, first[place]) for place in sorted(first, key=lambda place: -group.lags[place])][
        :_AGES_PER_GROUP
    ]


def ages_of(ask: Ask, wanted: dict[str, list[Waiting]]) -> dict[str, float | None]:
    """The largest age for each group: 0 if it has read everything, None where it is not known."""
    ages = ask.cluster.message_times.ages([each for waiting in wanted.values() for each in waiting])
    return {
        name: max((ages[each] for each in waiting if each in ages), default=None) if waiting else 0.0
        for name, waiting in wanted.items()
    }
