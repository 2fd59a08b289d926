"""DescribeGroups, DeleteGroups and others that name several groups: the shard of each answers for its own."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

from forebay.broker.coordinators.groups import Groups, Operation
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Response
from forebay.wire.messages import api


class _Kind(NamedTuple):
    operation: Operation[Any]
    asked: str
    """The field of the request that names groups: by their ids, or by items that have one."""
    answered: str = "groups"
    """The field of the response with what is said about each."""


_KINDS = {
    ApiKey.DESCRIBE_GROUPS: _Kind(GroupShard.describe_groups, "groups"),
    ApiKey.DELETE_GROUPS: _Kind(GroupShard.delete_groups, "groups_names", "results"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Kind(GroupShard.consumer_group_describe, "group_ids"),
    ApiKey.SHARE_GROUP_DESCRIBE: _Kind(GroupShard.share_group_describe, "group_ids"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _Kind(GroupShard.describe_share_group_offsets, "groups"),
}


async def handle(groups: Groups, context: RequestContext, request: Any) -> Response:
    kind = _KINDS[ApiKey(context.api_key)]
    asked = {getattr(item, "group_id", item): item for item in getattr(request, kind.asked)}

    def part(group_ids: list[str]) -> Any:
        own = copy(request)
        setattr(own, kind.asked, [asked[group_id] for group_id in group_ids])
        return own

    answers = await groups.ask_each(context, asked, part, kind.operation)
    told = [each for answer in answers for each in getattr(answer, kind.answered)]
    return api(context.api_key).response(**{kind.answered: told})
