"""CreateAcls: each rule by itself. A rule that is there already is as good as created."""

from __future__ import annotations

from forebay.broker.handlers.describe_acls import NO_AUTHORIZER
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.acls.administration import read_creation
from forebay.core.acls.text import acl_id
from forebay.core.cluster.images.acl_image import AclPut
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(
    metadata: Metadata, settings: LiveConfig, _context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    if not settings.current.authorization.is_enabled:
        error = KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[_failed(error)] * len(request.creations))
    results: list[AclCreationResult] = []
    wanted: dict[str, AclPut] = {}
    for creation in request.creations:
        try:
            acl = read_creation(creation)
            wanted[acl_id(acl)] = AclPut(id=acl_id(acl), acl=acl)
            results.append(AclCreationResult())
        except KafkaError as error:
            results.append(_failed(error))
    try:
        await metadata.refresh()
        known = metadata.image.acls
        await metadata.change_all([put for put in wanted.values() if put.id not in known])
    except KafkaError as error:  # it is not known which of them are stored; to create them again does no harm
        results = [result if result.error_code else _failed(error) for result in results]
    return CreateAclsResponse(results=results)


def _failed(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.message)
