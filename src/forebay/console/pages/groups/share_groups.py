"""Share groups (queues): the list, and one with its deliveries, locks, resets and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay.console.offset_resets import Plan, choice_of, plan_of
from forebay.console.pages.groups.group import seen
from forebay.console.pages.groups.group_list import ages_of, list_of, most_lagging
from forebay.console.web.asking import Ask, Change
from forebay.console.web.page import Page
from forebay.console.web.paging import ROWS_DEFAULT
from forebay.operations.client import CommandError
from forebay.operations.groups.share_admin import ShareAdmin
from forebay.operations.groups.share_description import describe_share_group
from forebay.operations.messages.log_offsets import Place

PAGE = Page()

TARGETS = ("to_earliest", "to_latest", "to_offset", "to_time")
_ROWS_MAX = 500


@PAGE.get("/share-groups")
def share_groups(ask: Ask) -> dict[str, Any]:
    return list_of(ask, lambda group: group.kind == "share")


@PAGE.get("/more-of-share-groups")
def more(ask: Ask) -> dict[str, Any]:
    """Ask the brokers for more: members, lag in seconds and deliveries under way of the groups in `names`."""
    picture = ask.cluster.snapshot()
    wanted = [name for name in ask.text("names").split("\n") if name in picture.groups][:ROWS_DEFAULT]
    seconds = ages_of(ask, {name: most_lagging(picture, picture.groups[name]) for name in wanted})
    found: dict[str, Any] = {}
    with ShareAdmin(ask.cluster.client) as admin:
        for name in wanted:
            try:
                members = len(admin.describe(name).members)
                windows = admin.windows(name).values()
            except CommandError:
                continue  # deleted meanwhile, or this user may not see it
            found[name] = {
                "seconds": seconds.get(name),
                "members": members,
                "held": sum(each.acquired for each in windows),
                "dead_letters": sum(each.dead_letters for each in windows),
            }
    return found


# -- changes -----------------------------------------------------------------------------------------------


@PAGE.get("/share-groups/{group:path}/reset")
def preview(ask: Ask) -> dict[str, Any]:
    """The start offsets that a reset would set, partition by partition. Changes nothing."""
    return _plan(ask).shown()


@PAGE.change("/share-groups/{group:path}/reset")
def reset(ask: Ask) -> Change:
    name, choice, plan = ask.path["group"], choice_of(ask.body, TARGETS), _plan(ask)
    count = f"{len(plan.offsets):,} partition{'' if len(plan.offsets) == 1 else 's'}"

    def act() -> None:
        with ShareAdmin(ask.cluster.client) as admin:
            admin.alter(name, plan.offsets)

    return Change(
        question=f"Let share group {name} go on elsewhere in {count}?",
        details=[
            *plan.lines(),
            "Messages after the new offset come again, and their delivery counts begin at one.",
        ],
        done=f"reset {count} of share group {name}",
        command=["share", "reset-offsets", name, *choice.arguments],
        act=act,
    )


def _plan(ask: Ask) -> Plan:
    choice = choice_of(ask.body or ask.query, TARGETS)
    with ShareAdmin(ask.cluster.client) as admin:
        progress = admin.progress(ask.path["group"])
    current = {place: each.start_offset for place, each in progress.items() if each.start_offset is not None}
    return plan_of(ask, choice, current)


@PAGE.change("/share-groups/{group:path}/delete")
def delete(ask: Ask) -> Change:
    _, found = seen(ask, share=True)

    def act() -> None:
        with ShareAdmin(ask.cluster.client) as admin:
            admin.delete(found.name)

    return Change(
        question=f"Delete share group {found.name}?",
        details=[
            f"Its progress in {len(found.offsets):,} partitions is lost. The messages stay.",
            *(["It is not empty: stop its consumers first."] if found.state not in ("Empty", "Dead") else ()),
        ],
        done=f"deleted share group {found.name}",
        command=["share", "delete", found.name, "--yes"],
        act=act,
        danger=True,
        name=found.name,
    )


# The address of a group itself is last: its name may have slashes.


@PAGE.get("/share-groups/{group:path}")
def share_group(ask: Ask) -> dict[str, Any]:
    """Everything about it; of very many partitions, those with the largest lag."""
    _, found = seen(ask, share=True)

    def ages(offsets: Mapping[Place, int]) -> dict[Place, float]:
        known = ask.cluster.message_times.ages(offsets.items())
        return {place: age for (place, _), age in known.items()}

    described = describe_share_group(ask.cluster.client, found.name, ages)
    rows = sorted(described["partitions"], key=lambda row: -(row["lag"] or 0))[:_ROWS_MAX]
    return {
        **described,
        "partitions": sorted(rows, key=lambda row: (row["topic"], row["partition"])),
        "partitions_all": len(described["partitions"]),
        "topics": sorted({row["topic"] for row in described["partitions"]}),
        "members": described["members"][:_ROWS_MAX],
        "members_all": len(described["members"]),
        "coordinator": found.coordinator,
        "problems": sorted(_problems(described["partitions"])),
    }


def _problems(rows: list[dict[str, Any]]) -> set[str]:
    windows = [row["window"] for row in rows if row["window"] is not None]
    blocked = {
        f"dead letters wait: {each['dead_letter_problem']}" for each in windows if each["dead_letter_problem"]
    }
    return blocked | {row["problem"] for row in rows if row["problem"]}
