"""DeleteAcls: the rules that match filters; the answer lists them."""

from __future__ import annotations

from forebay.broker.handlers.describe_acls import NO_AUTHORIZER
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.acls.administration import deleted, read_filter
from forebay.core.cluster.images.acl_image import AclDeleted
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import delete_acls as wire


async def handle(
    metadata: Metadata, settings: LiveConfig, _context: RequestContext, request: wire.DeleteAclsRequest
) -> wire.DeleteAclsResponse:
    if not settings.current.authorization.is_enabled:
        error = KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return wire.DeleteAclsResponse(filter_results=[_failed(error)] * len(request.filters))
    try:
        await metadata.refresh()
    except KafkaError as error:
        return wire.DeleteAclsResponse(filter_results=[_failed(error)] * len(request.filters))
    acls = metadata.image.acls
    results: list[wire.DeleteAclsFilterResult] = []
    gone: dict[str, None] = {}
    for each in request.filters:
        try:
            wanted = read_filter(each)
        except KafkaError as error:
            results.append(_failed(error))
            continue
        found = {key: acl for key, acl in acls.items() if wanted.matches(acl)}
        gone |= dict.fromkeys(found)
        results.append(wire.DeleteAclsFilterResult(matching_acls=deleted(found.values())))
    try:
        await metadata.change_all([AclDeleted(id=key) for key in gone])
    except KafkaError as error:  # it is not known which of them are gone; to delete them again does no harm
        results = [result if result.error_code else _failed(error) for result in results]
    return wire.DeleteAclsResponse(filter_results=results)


def _failed(error: KafkaError) -> wire.DeleteAclsFilterResult:
    return wire.DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
