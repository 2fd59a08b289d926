"""DeleteGroups: delete groups that have no members."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
