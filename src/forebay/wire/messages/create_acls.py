"""CreateAcls: add access rules."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreateAclsResponse(Response, api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
