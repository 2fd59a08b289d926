"""The shortcut of Produce lets nothing through that its guard would not, and all that its guard would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.core.acls.text import acl_id
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.guards.guard import Access
from forebay.core.guards.records import may_produce, produce
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NAMES = ("a", "ab", "b")
IDS = {name: bytes([number]) * 16 for number, name in enumerate(NAMES, 1)}
UNKNOWN_ID = bytes([9]) * 16
IMAGE = ClusterImage(cluster_id="c").apply(
    [TopicPut(record=TopicRecord(name=name, topic_id=IDS[name], assignment=((1,),))) for name in NAMES]
)

rules = st.builds(
    AclBinding,
    st.sampled_from((ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from((*NAMES, "*")),
    st.just("User:ada"),
    st.just("*"),
    st.sampled_from((Operation.WRITE, Operation.ALL)),
    st.sampled_from((Permission.DENY, Permission.ALLOW)),
)
data = PartitionProduceData(index=0, records=None)
topics = st.one_of(
    st.builds(TopicProduceData, name=st.sampled_from(NAMES), partition_data=st.just([data])),
    st.builds(
        TopicProduceData,
        name=st.just(""),
        topic_id=st.sampled_from((*IDS.values(), UNKNOWN_ID)),
        partition_data=st.just([data]),
    ),
)
requests = st.builds(
    ProduceRequest,
    transactional_id=st.sampled_from((None, *NAMES)),
    acks=st.sampled_from((-1, 0, 1)),
    timeout_ms=st.just(1),
    topic_data=st.lists(topics, max_size=3),
)


@given(st.lists(rules, max_size=4), requests)
def test_what_takes_the_shortcut_passes_the_guard(acls: list[AclBinding], request: ProduceRequest) -> None:
    authorizer = Authorizer()
    authorizer.replace({acl_id(acl): acl for acl in acls})
    access = Access(authorizer, "User:ada", "::1", IMAGE)
    verdict = produce(access, 13, request)
    passes = may_produce(authorizer, "User:ada", "::1", IMAGE, request)
    assert passes is (verdict is None)
