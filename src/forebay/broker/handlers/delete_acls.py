"""DeleteAcls: refused filter by filter, since there is no authorizer that has access rules."""

from __future__ import annotations

from forebay.broker.handlers.describe_acls import NO_AUTHORIZER
from forebay.broker.net.dispatch import RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages import delete_acls as wire


def handle(_context: RequestContext, request: wire.DeleteAclsRequest) -> wire.DeleteAclsResponse:
    refused = wire.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return wire.DeleteAclsResponse(filter_results=[refused] * len(request.filters))
