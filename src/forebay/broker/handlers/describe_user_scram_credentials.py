"""DescribeUserScramCredentials: the mechanisms that users may log in by. Keys and salts are never shown."""

from __future__ import annotations

from forebay.broker.cluster.topic_changes import named_twice
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.security.users import described
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import describe_user_scram_credentials as wire


def handle(
    metadata: Metadata, _context: RequestContext, request: wire.DescribeUserScramCredentialsRequest
) -> wire.DescribeUserScramCredentialsResponse:
    image = metadata.image
    # Kafka's clients ask for everybody with an empty list as well as with null.
    names = [each.name for each in request.users] if request.users else sorted(image.users)
    twice = named_twice(names)
    return wire.DescribeUserScramCredentialsResponse(
        results=[_result(image, name, repeated=name in twice) for name in dict.fromkeys(names)]
    )


def _result(image: ClusterImage, name: str, *, repeated: bool) -> wire.DescribeUserScramCredentialsResult:
    try:
        if repeated:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
            )
        found = described(image, name)
    except KafkaError as error:
        return wire.DescribeUserScramCredentialsResult(
            user=name, error_code=error.code, error_message=error.message
        )
    return wire.DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            wire.CredentialInfo(mechanism=code, iterations=iterations) for code, iterations in found
        ],
    )
