"""One consumer group: members, lag by partition, resets with a preview, removing a member, deleting."""

from __future__ import annotations

from typing import Any, NamedTuple

from forebay.console.offset_resets import Plan, choice_of, plan_of
from forebay.console.pages.groups.group_list import group_row, unread
from forebay.console.watch.snapshot import GroupSeen, Snapshot
from forebay.console.web.asking import Ask, Change, NotThere, body_text
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.operations.client import REQUEST_SECONDS, settle
from forebay.operations.groups.group_admin import alter_offsets, refuse_active, remove_member
from forebay.operations.groups.group_lag import (
    assigned,
    committed_offsets,
    describe_group,
    group_state,
    owners_of,
)
from forebay.operations.messages.log_offsets import Place

PAGE = Page()

TARGETS = ("to_earliest", "to_latest", "to_offset", "to_time", "shift_by")
CELLS_MAX = 3000
"""Of a strip: more than a person can tell apart."""
_MEMBERS_MAX = 500
_PLACES_SHOWN = 200


def seen(ask: Ask, *, share: bool = False) -> tuple[Snapshot, GroupSeen]:
    """The group that the address names; raises NotThere."""
    picture, name = ask.cluster.snapshot(), ask.path["group"]
    if name not in picture.groups:
        ask.cluster.watcher.refreshed()
        picture = ask.cluster.snapshot()
    found = picture.groups.get(name)
    if found is None or (found.kind == "share") != share:
        kind = "share group" if share else "group"
        raise NotThere(f"there is no {kind} {name}, or this user may not see it")
    return picture, found


def strips(found: GroupSeen) -> list[dict[str, Any]]:
    """The lag of every partition by topic, for a picture: None where it is not known."""
    by_topic: dict[str, dict[int, int | None]] = {}
    for topic, index in sorted(found.offsets)[:CELLS_MAX]:
        by_topic.setdefault(topic, {})[index] = found.lags.get((topic, index))
    return [
        {"topic": topic, "partitions": list(lags), "lags": list(lags.values())}
        for topic, lags in by_topic.items()
    ]


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    seconds: float | None
    member: str | None
    client: str | None


@PAGE.get("/groups/{group:path}/partitions")
def partitions(ask: Ask) -> dict[str, Any]:
    """Searched by topic, partition, member and client."""
    picture, found = seen(ask)
    described = describe_group(ask.cluster.admin(), found.name)
    owners = owners_of(described)
    clients = {member.member_id: member.client_id for member in described.members}
    ends = ends_in(picture, {topic for topic, _ in (*found.offsets, *owners)})

    def row(place: Place) -> PartitionRow:
        member = owners.get(place)
        return PartitionRow(
            *place,
            committed=found.offsets.get(place),
            end=ends.get(place),
            lag=found.lags.get(place),
            seconds=0.0 if found.lags.get(place) == 0 else None,
            member=member,
            client=None if member is None else clients.get(member),
        )

    rows = [row(place) for place in sorted({*found.offsets, *owners})]
    answer = page_of(
        ask,
        rows,
        name=lambda row: (
            f"{row.topic}-{row.partition:05d} {row.topic}-{row.partition} {row.member} {row.client}"
        ),
        columns={
            "name": lambda row: (row.topic, row.partition),
            "committed": lambda row: row.committed,
            "end": lambda row: row.end,
            "lag": lambda row: row.lag,
            "client": lambda row: row.client,
        },
        default="name",
        show=lambda row: row._asdict(),
    )
    _add_seconds(ask, picture, found, answer["rows"])
    return answer


def ends_in(picture: Snapshot, topics: set[str]) -> dict[Place, int | None]:
    return {
        (name, part.index): part.end
        for name in topics
        if name in picture.topics
        for part in picture.topics[name].partitions
    }


def _add_seconds(ask: Ask, picture: Snapshot, found: GroupSeen, rows: list[dict[str, Any]]) -> None:
    """The age of the first unread message, for the rows of this page that are behind."""
    first = unread(picture, found)
    waiting = {place: (place, first[place]) for row in rows if (place := _place(row)) in first}
    ages = ask.cluster.message_times.ages(waiting.values())
    for row in rows:
        if _place(row) in waiting:
            row["seconds"] = ages.get(waiting[_place(row)])


def _place(row: dict[str, Any]) -> Place:
    return row["topic"], row["partition"]


# -- changes -----------------------------------------------------------------------------------------------


@PAGE.get("/groups/{group:path}/reset")
def preview(ask: Ask) -> dict[str, Any]:
    """Preview what a reset would commit, partition by partition. Changes nothing."""
    return {**_plan(ask).shown(), "state": group_state(describe_group(ask.cluster.admin(), _name(ask)))}


@PAGE.change("/groups/{group:path}/reset")
def reset(ask: Ask) -> Change:
    name, choice, plan = _name(ask), choice_of(ask.body, TARGETS), _plan(ask)
    count = len(plan.offsets)

    def act() -> None:
        admin = ask.cluster.admin()
        refuse_active(admin, name)
        alter_offsets(admin, name, plan.offsets)

    return Change(
        question=f"Reset the offsets of group {name} in {count:,} partition{'' if count == 1 else 's'}?",
        details=plan.lines(),
        done=f"reset {count:,} partition{'' if count == 1 else 's'} of group {name}",
        command=["group", "reset-offsets", name, *choice.arguments],
        act=act,
    )


def _plan(ask: Ask) -> Plan:
    choice = choice_of(ask.body or ask.query, TARGETS)
    return plan_of(ask, choice, committed_offsets(ask.cluster.admin(), _name(ask)))


def _name(ask: Ask) -> str:
    return ask.path["group"]


@PAGE.change("/groups/{group:path}/remove-member")
def remove(ask: Ask) -> Change:
    """The body: member."""
    name, member = _name(ask), body_text(ask, "member")
    return Change(
        question=f"Remove member {member} from group {name}?",
        details=[
            "Its partitions go to the other members.",
            "A consumer that is still alive notices it, and joins again.",
        ],
        done=f"removed member {member} from group {name}",
        command=["group", "remove-member", name, member],
        act=lambda: remove_member(ask.cluster.client, ask.cluster.admin(), name, member),
    )


@PAGE.change("/groups/{group:path}/delete")
def delete(ask: Ask) -> Change:
    _, found = seen(ask)
    return Change(
        question=f"Delete group {found.name}?",
        details=[
            f"What it has committed for {len(found.offsets):,} partitions is lost. The messages stay.",
            *(["It is not empty: stop its consumers first."] if found.state not in ("Empty", "Dead") else ()),
        ],
        done=f"deleted group {found.name}",
        command=["group", "delete", found.name, "--yes"],
        act=lambda: settle(
            ask.cluster.admin().delete_consumer_groups([found.name], request_timeout=REQUEST_SECONDS)[
                found.name
            ]
        ),
        danger=True,
        name=found.name,
    )


# The address of a group itself is last: its name may have slashes.


@PAGE.get("/groups/{group:path}")
def group(ask: Ask) -> dict[str, Any]:
    _, found = seen(ask)
    described = describe_group(ask.cluster.admin(), found.name)
    owners = owners_of(described)
    return {
        **group_row(found),
        "state": group_state(described),
        "protocol": described.partition_assignor or None,
        "topics": sorted(found.topics | {topic for topic, _ in owners}),
        "strips": strips(found),
        "members_all": len(described.members),
        "members": [
            {
                "id": member.member_id,
                "client": member.client_id,
                "host": member.host.lstrip("/"),
                "instance": member.group_instance_id,
                "partitions": len(
                    places := sorted((each.topic, each.partition) for each in assigned(member))
                ),
                "assignment": places[:_PLACES_SHOWN],
                "lag": sum(found.lags.get(place, 0) for place in places),
            }
            for member in sorted(described.members, key=lambda each: each.client_id)[:_MEMBERS_MAX]
        ],
    }
