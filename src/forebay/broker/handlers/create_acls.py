"""CreateAcls: refused one by one, since there is no authorizer that would heed access rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.handlers.describe_acls import NO_AUTHORIZER
from forebay.errors import ErrorCode
from forebay.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(_: Broker, _context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


ENDPOINT = Endpoint(30, 1, 3, handle)
