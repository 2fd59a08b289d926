"""Requests with bytes changed at random: a guard has a verdict on all that can be decoded.

A guard that raised would close the connection, which is no answer. What it answers, and what it passes on,
can be encoded in the version of the request.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.core.acls.text import acl_id
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.guards.guard import Access, Narrowed, Refused
from forebay.core.guards.table import RULES
from forebay.errors import ProtocolError
from forebay.wire.codec.compiled import decoder
from forebay.wire.fields import Request
from forebay.wire.frames import request_frame, response_frame
from forebay.wire.messages import api, api_name
from forebay.wire.parts import join
from support.access.sample_requests import SPECIAL, TOPIC, request_of, sample

TOPIC_ID = bytes(range(16))
MUTATIONS = 60
IMAGE = ClusterImage(cluster_id="c").apply(
    [TopicPut(record=TopicRecord(name=TOPIC, topic_id=TOPIC_ID, assignment=((1,),)))]
)


def authorizer(*operations: Operation) -> Authorizer:
    made = Authorizer()
    acls = [
        AclBinding(kind, PatternType.PREFIXED, "m", "User:ada", "*", operation, Permission.ALLOW)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        for operation in operations
    ]
    made.replace({acl_id(acl): acl for acl in acls})
    return made


AUTHORIZERS = (
    authorizer(),
    authorizer(Operation.DESCRIBE),
    authorizer(Operation.READ, Operation.WRITE),
    Authorizer(super_users=frozenset({"User:ada"})),
)


def bodies(key: int, version: int) -> Iterator[Request]:
    """Requests that differ from a well-formed one in a few bytes, and can still be decoded."""
    chance = random.Random(key * 100 + version)
    decode = decoder(api(key).request, version)
    made = [sample(key, TOPIC_ID)]
    if key in SPECIAL:
        made.append(request_of(key, TOPIC_ID))
    for request in made:
        whole = join(request_frame(request, version, 1, None))[4:]
        head = 8 + 2 + (version >= api(key).flexible_from)
        for number in range(MUTATIONS):
            body = bytearray(whole[head:])
            for _ in range(chance.randint(0, 3) if number and body else 0):
                body[chance.randrange(len(body))] = chance.choice(
                    (0, 1, 2, 0x7F, 0xFF, chance.randrange(256))
                )
            try:
                yield decode(memoryview(bytes(body)), 0)[0]
            except ProtocolError:
                continue


@pytest.mark.parametrize("key", sorted(RULES), ids=api_name)
def test_a_guard_has_a_verdict(key: int) -> None:
    guard, api_ = RULES[key].guard, api(key)
    verdicts = 0
    for version in range(api_.min_version, api_.max_version + 1):
        for request in bodies(key, version):
            for each in AUTHORIZERS:
                access = Access(each, "User:ada", "::1", IMAGE, creates_topics=True)
                verdict = guard(access, version, request)
                if isinstance(verdict, Refused) and verdict.response is not None:
                    response_frame(key, version, 1, verdict.response)
                elif isinstance(verdict, Narrowed):
                    request_frame(verdict.request, version, 1, None)
                    response_frame(key, version, 1, verdict.complete(api_.response()))
                verdicts += 1
    assert verdicts
