"""Says where the requests of each API can be cut.

An API belongs here if its handler treats every element separately, so that a client could have sent several
requests instead. It does not if elements belong together: AddPartitionsToTxn adds all partitions or none,
fetches have sessions, group members send their whole subscription at once. Those are handled as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from forebay.core.large_requests.answer_parts import TOPICS_MAX
from forebay.core.large_requests.division import Division, Repeats
from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import changed

ONCE, REFUSED = Repeats.ONCE, Repeats.REFUSED


def partitions_once(topics: Iterable[Any]) -> Iterator[Any]:
    """Topics without partitions that were named before, under the same name."""
    seen: dict[str, set[int]] = {}
    for topic in topics:
        known = seen.setdefault(topic.name, set())
        new = [index for index in dict.fromkeys(topic.partition_indexes) if index not in known]
        known.update(new)
        yield changed(topic, partition_indexes=new) if new or not topic.partition_indexes else None


def _whole_groups_once(groups: Iterable[Any]) -> Iterator[Any]:
    """Groups without those that ask once more for all offsets of a group."""
    whole: set[str] = set()
    for group in groups:
        is_known = group.topics is None and group.group_id in whole
        if group.topics is None:
            whole.add(group.group_id)
        yield None if is_known else group


_PARTITIONS = (Division(("topics", "partitions"), ("topics", "partitions")),)
_RESULTS = (Division(("topics", "partitions"), ("results", "partitions")),)
_RESPONSES = (Division(("topics", "partitions"), ("responses", "partitions")),)
_GROUPS = (Division(("group_ids",), ("groups",), ONCE),)
_SETTINGS = (Division(("resources",), ("responses",), REFUSED, ("resource_type", "resource_name")),)

_FORMS: dict[int, tuple[Division, ...]] = {
    ApiKey.PRODUCE: (Division(("topic_data", "partition_data"), ("responses", "partition_responses")),),
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.METADATA: (
        Division(("topics",), ("topics", "partitions"), ONCE, ("name", "topic_id"), at_once=TOPICS_MAX),
    ),
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_FETCH: (
        Division(
            ("groups", "topics", "partition_indexes"),
            ("groups", "topics", "partitions"),
            distinct=_whole_groups_once,
        ),
        Division(("topics", "partition_indexes"), ("topics", "partitions")),
    ),
    ApiKey.FIND_COORDINATOR: (Division(("coordinator_keys",), ("coordinators",), ONCE),),
    ApiKey.LEAVE_GROUP: (Division(("members",), ("members",)),),
    ApiKey.DESCRIBE_GROUPS: (Division(("groups",), ("groups",), ONCE),),
    ApiKey.CREATE_TOPICS: (Division(("topics",), ("topics",), REFUSED, ("name",)),),
    ApiKey.DELETE_TOPICS: (
        Division(("topics",), ("responses",), REFUSED, ("name", "topic_id")),
        Division(("topic_names",), ("responses",), REFUSED),
    ),
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.WRITE_TXN_MARKERS: (
        Division(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),
    ),
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.CREATE_ACLS: (Division(("creations",), ("results",)),),
    ApiKey.DELETE_ACLS: (Division(("filters",), ("filter_results",), at_once=10),),
    ApiKey.DESCRIBE_CONFIGS: (
        Division(
            ("resources",),
            ("results",),
            ONCE,
            ("resource_type", "resource_name", "configuration_keys"),
            at_once=10,
        ),
    ),
    ApiKey.ALTER_CONFIGS: _SETTINGS,
    ApiKey.CREATE_PARTITIONS: (Division(("topics",), ("results",), REFUSED, ("name",)),),
    ApiKey.DELETE_GROUPS: (Division(("groups_names",), ("results",)),),
    ApiKey.ELECT_LEADERS: (
        Division(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _SETTINGS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.ALTER_CLIENT_QUOTAS: (Division(("entries",), ("entries",), REFUSED, ("entity",)),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Division(("users",), ("results",), REFUSED, ("name",)),),
    ApiKey.DESCRIBE_PRODUCERS: (
        Division(
            ("topics", "partition_indexes"),
            ("topics", "partitions"),
            at_once=10,
            distinct=partitions_once,
        ),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (Division(("transactional_ids",), ("transaction_states",), ONCE),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _GROUPS,
    ApiKey.SHARE_GROUP_DESCRIBE: _GROUPS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _RESULTS,
    ApiKey.READ_SHARE_GROUP_STATE: _RESULTS,
    ApiKey.WRITE_SHARE_GROUP_STATE: _RESULTS,
    ApiKey.DELETE_SHARE_GROUP_STATE: _RESULTS,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _RESULTS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        Division(("groups", "topics", "partitions"), ("groups", "topics", "partitions")),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _RESPONSES,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (Division(("topics",), ("responses",)),),
}


_LARGE_ANSWERS: dict[int, Division] = {
    ApiKey.METADATA: _FORMS[ApiKey.METADATA][0],
    ApiKey.LIST_GROUPS: Division((), ("groups",)),
    ApiKey.LIST_TRANSACTIONS: Division((), ("transaction_states",)),
}
"""APIs whose answers may be large although their requests are small (`answer_parts.py`)."""


def division_of(api_key: int, request: Any) -> Division | None:
    """How to cut a request; None if it cannot be."""
    for division in _FORMS.get(api_key, ()):
        if division.concerns(request):
            return division
    return None


def has_large_answers(api_key: int) -> bool:
    return api_key in _LARGE_ANSWERS


def answer_division(api_key: int) -> Division:
    """How the parts of a large answer become one."""
    return _LARGE_ANSWERS[api_key]


def is_cut(api_key: int) -> bool:
    return api_key in _FORMS


@cache
def cut_from_bytes(api_key: int) -> int | None:
    """The minimum size of a request to be looked at; None if requests are not cut by size. One with a large
    answer may be short.

    Produce is checked only if it has more elements than any normal client sends: its handler is fast, and its
    requests are many.
    """
    if api_key in _LARGE_ANSWERS:
        return 0
    if api_key == ApiKey.PRODUCE or api_key not in _FORMS:
        return None
    return min(division.at_once for division in _FORMS[api_key])
