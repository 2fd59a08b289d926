"""AlterUserScramCredentials: add users, give them passwords, delete them; each user stands or falls alone."""

from __future__ import annotations

import logging

from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.security.users import Upsertion, UserAlteration, alter_user
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import alter_user_scram_credentials as wire

log = logging.getLogger(__name__)


async def handle(
    metadata: Metadata, context: RequestContext, request: wire.AlterUserScramCredentialsRequest
) -> wire.AlterUserScramCredentialsResponse:
    results = []
    for alteration in _by_user(request):
        code, message = ErrorCode.NONE, None
        try:
            await metadata.change(lambda image, one=alteration: alter_user(image, one))  # type: ignore[misc]
            log.info(
                "the credentials of a user were altered",
                extra={"user": alteration.name, "by": context.connection.principal},
            )
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(
            wire.AlterUserScramCredentialsResult(user=alteration.name, error_code=code, error_message=message)
        )
    return wire.AlterUserScramCredentialsResponse(results=results)


def _by_user(request: wire.AlterUserScramCredentialsRequest) -> list[UserAlteration]:
    deletions: dict[str, list[int]] = {}
    upsertions: dict[str, list[Upsertion]] = {}
    for deletion in request.deletions:
        deletions.setdefault(deletion.name, []).append(deletion.mechanism)
    for each in request.upsertions:
        upsertions.setdefault(each.name, []).append(
            Upsertion(
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=bytes(each.salt),
                salted_password=bytes(each.salted_password),
            )
        )
    return [
        UserAlteration(name=name, deletions=deletions.get(name, ()), upsertions=upsertions.get(name, ()))
        for name in dict.fromkeys((*deletions, *upsertions))
    ]
