"""One topic: partitions and leaders, settings with their source, readers; changing and deleting it."""

from __future__ import annotations

from typing import Any

from forebay.console.pages.topics.topic_list import configs_of, topic_row
from forebay.console.watch.snapshot import Snapshot, TopicSeen
from forebay.console.web.asking import Ask, Change, NotThere, WrongInput, whole_number
from forebay.console.web.page import Page
from forebay.operations.client import REQUEST_SECONDS, CommandError, settle
from forebay.operations.remote_logs import is_behind
from forebay.operations.settings import alter_configs, read_configs
from forebay.operations.topics.partition_counts import fold
from forebay.operations.topics.topic_admin import add_partitions, describe_topics, shown_by
from forebay.wire.messages.describe_remote_logs import DescribedRemoteLog

PAGE = Page()

_PARTITIONS_MAX = 10_000


def seen(ask: Ask) -> tuple[Snapshot, TopicSeen]:
    """The topic that the address names; raises NotThere."""
    picture, name = ask.cluster.snapshot(), ask.path["topic"]
    if name not in picture.topics:
        ask.cluster.watcher.refreshed()
        picture = ask.cluster.snapshot()
    if name not in picture.topics:
        raise NotThere(f"there is no topic {name}, or this user may not see it")
    return picture, picture.topics[name]


@PAGE.get("/topics/{topic}")
def topic(ask: Ask) -> dict[str, Any]:
    picture, found = seen(ask)
    return {
        **topic_row(picture, found),
        "id": found.id,
        "time": picture.time_s,
        "rows": [
            {
                "partition": part.index,
                "leader": part.leader if part.leader >= 0 else None,
                "replicas": part.replicas,
                "isr": part.isr,
                "start": part.start,
                "end": part.end,
                "messages": part.messages,
                "size": part.size,
                "remote": None if part.remote is None else _remote(part.remote),
            }
            for part in found.partitions
        ],
        "groups": [
            {
                "name": name,
                "kind": picture.groups[name].kind,
                "state": picture.groups[name].state,
                "lag": sum(
                    lag for (topic, _), lag in picture.groups[name].lags.items() if topic == found.name
                ),
            }
            for name in picture.readers.get(found.name, ())
        ],
    }


def _remote(log: DescribedRemoteLog) -> dict[str, Any]:
    """The part of a tiered partition that is in the object store; None for what its leader does not know."""
    return {
        "known": log.is_known,
        "local_start": log.local_start_offset,
        "start": log.remote_start_offset if log.remote_start_offset >= 0 else None,
        "end": log.remote_end_offset if log.remote_end_offset >= 0 else None,
        "size": log.remote_bytes if log.is_known else None,
        "waiting_segments": log.waiting_segments if log.is_known else None,
        "waiting": log.waiting_bytes if log.is_known else None,
        "copies": log.copies,
        "behind": is_behind(log),
        "problem": log.problem,
    }


@PAGE.get("/topics/{topic}/settings")
def settings(ask: Ask) -> dict[str, Any]:
    """Every setting with its value and where that comes from; those of the topic itself first."""
    _, found = seen(ask)
    rows = read_configs(ask.cluster.admin(), "topic", found.name)
    rows.sort(key=lambda row: (row["source"] != "DYNAMIC_TOPIC_CONFIG", row["name"]))
    return {"rows": rows}


@PAGE.get("/topics/{topic}/folds")
def folds(ask: Ask) -> dict[str, Any]:
    """Partitions that are closed or come back, and what that waits for."""
    _, found = seen(ask)
    (described,) = describe_topics(ask.cluster.client, ask.cluster.admin(), [found.name])
    into = {part["partition"]: part["folded_into"] for part in described["partitions"]}
    return {
        "closed": described["closed"],
        "folded_into": {index: taker for index, taker in into.items() if taker is not None},
        "min_insync_replicas": described["min_insync_replicas"],
    }


@PAGE.change("/topics/{topic}/settings")
def alter(ask: Ask) -> Change:
    """The body: configs to set, and `deleted`, those that go back to their default."""
    _, found = seen(ask)
    configs = configs_of(ask)
    deleted = [str(name) for name in ask.body.get("deleted", ())]
    if not configs and not deleted:
        raise WrongInput("nothing to change", "configs")
    command = ["topic", "alter", found.name]
    for key, value in configs.items():
        command += ["--config", f"{key}={value}"]
    for key in deleted:
        command += ["--delete-config", key]
    lines = [f"{key} = {value}" for key, value in configs.items()]
    lines += [f"{key} back to its default" for key in deleted]
    return Change(
        question=f"Change the settings of topic {found.name}?",
        details=lines,
        done=f"changed {len(lines)} setting{'' if len(lines) == 1 else 's'} of topic {found.name}",
        command=command,
        act=lambda: alter_configs(ask.cluster.admin(), "topic", found.name, list(configs.items()), deleted),
    )


@PAGE.change("/topics/{topic}/partitions")
def partitions(ask: Ask) -> Change:
    """The body: count. Fewer than now are folded."""
    _, found = seen(ask)
    before = len(found.partitions)
    count = whole_number(ask.body.get("count", ""), "count", least=1, most=_PARTITIONS_MAX)
    if count == before:
        raise WrongInput(f"the topic has {count} partitions already", "count")
    command = ["topic", "alter", found.name, "--partitions", str(count)]
    if count > before:
        return Change(
            question=f"Give topic {found.name} {count} partitions instead of {before}?",
            details=["New messages with the same key may go to another partition than before."],
            done=f"topic {found.name} has {count} partitions",
            command=command,
            act=lambda: add_partitions(ask.cluster.admin(), found.name, count),
        )
    key_moves = ask.body.get("allow_key_moves") is True
    return Change(
        question=f"Fold topic {found.name} from {before} to {count} partitions?",
        details=[
            f"Partitions {count} to {before - 1} take no more messages; those go to the remaining ones.",
            "Each closed partition stays readable until it is empty.",
        ],
        done=f"folding topic {found.name} to {count} partitions",
        command=[*command, *(["--allow-key-moves"] if key_moves else [])],
        act=lambda: fold(
            ask.cluster.client, found.name, count, drop_after_ms=None, allow_key_moves=key_moves
        ),
    )


@PAGE.change("/topics/{topic}/delete")
def delete(ask: Ask) -> Change:
    _, found = seen(ask)
    count = f"{found.messages:,} messages" if found.messages is not None else "all its messages"
    readers = ask.cluster.snapshot().readers.get(found.name, ())
    return Change(
        question=f"Delete topic {found.name} with {count}?",
        details=[f"Group {name} has read from it." for name in readers[:5]],
        done=f"deleted topic {found.name}",
        command=["topic", "delete", found.name, "--yes"],
        act=lambda: _delete(ask, found.name),
        danger=True,
        name=found.name,
    )


def _delete(ask: Ask, name: str) -> None:
    admin = ask.cluster.admin()
    try:
        settle(admin.delete_topics([name], request_timeout=REQUEST_SECONDS)[name])
    except CommandError as error:
        raise CommandError("\n".join([str(error), *shown_by(ask.cluster.client, [name])])) from None
