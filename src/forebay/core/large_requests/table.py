"""Where the requests of each API can be cut.

An API belongs here if its handler treats every element by itself, so that a client could as well have sent
several requests. It does not if elements belong together: the partitions that AddPartitionsToTxn adds are all
added or none, fetches have sessions, members of groups say what they want in one breath. Those are handled as
a whole.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from forebay.core.large_requests.division import Division, Repeats

ONCE, REFUSED = Repeats.ONCE, Repeats.REFUSED

_PRODUCE = 0

_PARTITIONS = (Division(("topics", "partitions"), ("topics", "partitions")),)
_RESULTS = (Division(("topics", "partitions"), ("results", "partitions")),)
_RESPONSES = (Division(("topics", "partitions"), ("responses", "partitions")),)
_GROUPS = (Division(("group_ids",), ("groups",), ONCE),)
_SETTINGS = (Division(("resources",), ("responses",), REFUSED, ("resource_type", "resource_name")),)

_FORMS: dict[int, tuple[Division, ...]] = {
    0: (Division(("topic_data", "partition_data"), ("responses", "partition_responses")),),
    2: _PARTITIONS,
    3: (Division(("topics",), ("topics",), ONCE, ("name", "topic_id"), at_once=50),),
    8: _PARTITIONS,
    9: (
        Division(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
        Division(("topics", "partition_indexes"), ("topics", "partitions")),
    ),
    10: (Division(("coordinator_keys",), ("coordinators",), ONCE),),
    13: (Division(("members",), ("members",)),),
    15: (Division(("groups",), ("groups",), ONCE),),
    19: (Division(("topics",), ("topics",), REFUSED, ("name",)),),
    20: (
        Division(("topics",), ("responses",), REFUSED, ("name", "topic_id")),
        Division(("topic_names",), ("responses",), REFUSED),
    ),
    21: _PARTITIONS,
    23: _PARTITIONS,
    27: (Division(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),),
    28: _PARTITIONS,
    30: (Division(("creations",), ("results",)),),
    31: (Division(("filters",), ("filter_results",), at_once=10),),
    32: (
        Division(
            ("resources",),
            ("results",),
            ONCE,
            ("resource_type", "resource_name", "configuration_keys"),
            at_once=10,
        ),
    ),
    33: _SETTINGS,
    37: (Division(("topics",), ("results",), REFUSED, ("name",)),),
    42: (Division(("groups_names",), ("results",)),),
    43: (Division(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),),
    44: _SETTINGS,
    47: _PARTITIONS,
    49: (Division(("entries",), ("entries",), REFUSED, ("entity",)),),
    50: (Division(("users",), ("results",), REFUSED, ("name",)),),
    61: (Division(("topics", "partition_indexes"), ("topics", "partitions")),),
    65: (Division(("transactional_ids",), ("transaction_states",), ONCE),),
    69: _GROUPS,
    77: _GROUPS,
    83: _RESULTS,
    84: _RESULTS,
    85: _RESULTS,
    86: _RESULTS,
    87: _RESULTS,
    90: (Division(("groups", "topics", "partitions"), ("groups", "topics", "partitions")),),
    91: _RESPONSES,
    92: (Division(("topics",), ("responses",)),),
}


def division_of(api_key: int, request: Any) -> Division | None:
    """How to cut a request; None if it cannot be."""
    for division in _FORMS.get(api_key, ()):
        if division.concerns(request):
            return division
    return None


def is_cut(api_key: int) -> bool:
    return api_key in _FORMS


@cache
def cut_from_bytes(api_key: int) -> int | None:
    """How long a request has to be at least to be cut; None if that is never asked.

    Produce is looked at only if it has more elements than any good client sends: its handler is fast, and its
    requests are many.
    """
    if api_key == _PRODUCE or api_key not in _FORMS:
        return None
    return min(division.at_once for division in _FORMS[api_key])
