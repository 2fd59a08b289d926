"""CreateAcls: refused one by one, since there is no authorizer that would heed access rules."""

from __future__ import annotations

from forebay.broker.handlers.describe_acls import NO_AUTHORIZER
from forebay.broker.net.dispatch import RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(_context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
