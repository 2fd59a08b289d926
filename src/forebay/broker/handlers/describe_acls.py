"""DescribeAcls: the access rules that match a filter, by resource."""

from __future__ import annotations

from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.acls.administration import described, read_filter
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's words: MirrorMaker and other tools are known to look for them."""


def handle(
    metadata: Metadata, settings: LiveConfig, _context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    if not settings.current.authorization.is_enabled:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    try:
        wanted = read_filter(request)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    return DescribeAclsResponse(resources=described(metadata.image.acls.values(), wanted))
