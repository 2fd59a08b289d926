"""Large requests in pieces: nothing is lost, nothing is handled twice, and the answers fit together again."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.large_requests.division import Division, JoinedResponse, weight
from forebay.core.large_requests.table import _FORMS, cut_from_bytes, division_of
from forebay.errors import ErrorCode
from forebay.wire.fields import Struct
from forebay.wire.messages import API_KEYS, api, list_offsets, metadata, produce
from forebay.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from forebay.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def of(request: Any) -> Division:
    division = division_of(request.API_KEY, request)
    assert division is not None
    return division


def pieces(request: Any) -> list[Any]:
    division = of(request)
    found = [piece for piece in division.pieces(request) if piece is not None]
    assert all(weight(piece, 10**6) <= division.at_once + 3 * 4 for piece in found)
    return found


def test_a_list_is_cut_in_its_order() -> None:
    names = [f"t{number}" for number in range(1234)]
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name) for name in names])
    found = pieces(request)
    assert len(found) == 25
    assert [topic.name for piece in found for topic in piece.topics] == names
    assert not any(piece.include_topic_authorized_operations for piece in found)


def test_a_topic_that_is_named_often_is_asked_for_once() -> None:
    topics = [metadata.MetadataRequestTopic(name="ab"[number % 2]) for number in range(5000)]
    (only,) = pieces(metadata.MetadataRequest(topics=topics))
    assert [topic.name for topic in only.topics] == ["a", "b"]


def test_resources_that_are_named_twice_meet_in_one_piece() -> None:
    """The handler refuses them, which it cannot if it sees them one at a time."""
    names = [f"t{number}" for number in range(600)] + ["twice"] + ["often"] * 601 + ["twice"]
    found = pieces(
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name=name) for name in names]
        )
    )
    seen = [[resource.resource_name for resource in piece.resources] for piece in found]
    assert sorted(name for piece in seen for name in piece) == sorted(names)
    assert all(
        piece.count(name) in (0, 2, 3) or piece.count(name) > 3 for piece in seen for name in ("often",)
    )
    assert [piece.count("twice") for piece in seen if "twice" in piece] == [2]
    assert all(piece.count("often") != 1 for piece in seen)


def test_plain_names_that_are_repeated_meet_too() -> None:
    found = pieces(DeleteTopicsRequest(topic_names=["x", *map(str, range(1000)), "x"]))
    assert [piece.topic_names.count("x") for piece in found if "x" in piece.topic_names] == [2]


def test_a_topic_with_many_partitions_is_cut_and_is_whole_in_the_response() -> None:
    wanted = [list_offsets.ListOffsetsPartition(partition_index=index) for index in range(700)]
    small = [list_offsets.ListOffsetsPartition(partition_index=7)]
    request = list_offsets.ListOffsetsRequest(
        isolation_level=1,
        topics=[
            list_offsets.ListOffsetsTopic(name="a", partitions=small),
            list_offsets.ListOffsetsTopic(name="b", partitions=wanted),
            list_offsets.ListOffsetsTopic(name="c", partitions=small),
        ],
    )
    joined = JoinedResponse(of(request))
    for piece in pieces(request):
        assert piece.isolation_level == 1
        assert joined.add(
            list_offsets.ListOffsetsResponse(
                topics=[
                    list_offsets.ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            list_offsets.ListOffsetsPartitionResponse(partition_index=each.partition_index)
                            for each in topic.partitions
                        ],
                    )
                    for topic in piece.topics
                ]
            )
        )
    assert [topic.name for topic in joined.whole.topics] == ["a", "b", "c"]
    assert [each.partition_index for each in joined.whole.topics[1].partitions] == list(range(700))


def test_three_levels_are_cut_and_joined() -> None:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=f"g{group}",
                topics=[
                    OffsetFetchRequestTopics(name=f"t{topic}", partition_indexes=list(range(300)))
                    for topic in range(3)
                ],
            )
            for group in range(2)
        ]
    )
    joined = JoinedResponse(of(request))
    for piece in pieces(request):
        joined.add(
            OffsetFetchResponse(
                groups=[
                    OffsetFetchResponseGroup(
                        group_id=group.group_id,
                        topics=[
                            OffsetFetchResponseTopics(
                                name=topic.name,
                                partitions=[
                                    OffsetFetchResponsePartitions(partition_index=index)
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in group.topics
                        ],
                    )
                    for group in piece.groups
                ]
            )
        )
    assert [
        (group.group_id, topic.name, [each.partition_index for each in topic.partitions])
        for group in joined.whole.groups
        for topic in group.topics
    ] == [(f"g{group}", f"t{topic}", list(range(300))) for group in range(2) for topic in range(3)]


def test_an_error_of_the_whole_ends_it() -> None:
    joined = JoinedResponse(of(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])))
    assert joined.add(OffsetFetchResponse(throttle_time_ms=5))
    assert not joined.add(OffsetFetchResponse(error_code=ErrorCode.INVALID_REQUEST))
    assert joined.whole.error_code == ErrorCode.INVALID_REQUEST and joined.whole.throttle_time_ms == 5


def test_what_tells_of_brokers_names_each_once_and_the_longest_wait_counts() -> None:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")])
    joined = JoinedResponse(of(request))
    for waits_ms, nodes in ((0, (1, 2)), (30, (2, 3)), (10, (1, 3))):
        joined.add(
            metadata.MetadataResponse(
                throttle_time_ms=waits_ms,
                brokers=[metadata.MetadataResponseBroker(node_id=node, host=f"h{node}") for node in nodes],
                topics=[metadata.MetadataResponseTopic(name=str(waits_ms))],
            )
        )
    assert [broker.node_id for broker in joined.whole.brokers] == [1, 2, 3]
    assert [topic.name for topic in joined.whole.topics] == ["0", "30", "10"]
    assert joined.whole.throttle_time_ms == 30


def _follow(struct: type[Struct], path: tuple[str, ...]) -> None:
    for name in path:
        field = struct.FIELDS[name]
        assert field.kind == "array" and field.element is not None
        if field.element.struct is not None:
            struct = field.element.struct


@pytest.mark.parametrize("key", API_KEYS)
def test_the_table_names_arrays_that_there_are(key: int) -> None:
    for division in _FORMS.get(key, ()):
        _follow(api(key).request, division.asked)
        _follow(api(key).response, division.answered)
        element = api(key).request.FIELDS[division.asked[0]].element
        assert element is not None
        struct = element.struct
        assert set(division.names) <= (set() if struct is None else set(struct.FIELDS))
        assert len(division.answered) >= len(division.asked)


def test_what_belongs_together_is_not_cut_and_small_requests_of_producers_are_not_looked_at() -> None:
    for key in (1, 11, 14, 24, 78):
        assert division_of(key, api(key).request()) is None and cut_from_bytes(key) is None
    assert cut_from_bytes(produce.ProduceRequest.API_KEY) is None


def test_a_partition_whose_producers_are_asked_for_again_and_again_is_described_once() -> None:
    """Its answer may be large, so that a small request could have asked for any amount."""
    topics = [TopicRequest(name=f"t{number % 3}", partition_indexes=[0, number % 2]) for number in range(900)]
    wanted = DescribeProducersRequest(topics=[*topics, TopicRequest(name="none", partition_indexes=[])])
    asked = [(topic.name, topic.partition_indexes) for piece in pieces(wanted) for topic in piece.topics]
    assert asked == [("t0", [0]), ("t1", [0, 1]), ("t2", [0]), ("t0", [1]), ("t2", [1]), ("none", [])]


def test_all_offsets_of_a_group_are_fetched_once_and_single_ones_as_often_as_they_are_named() -> None:
    whole = [OffsetFetchRequestGroup(group_id=f"g{number % 2}", topics=None) for number in range(900)]
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[1])
    single = [OffsetFetchRequestGroup(group_id="g0", topics=[topic]) for _ in range(3)]
    found = pieces(OffsetFetchRequest(groups=[*whole, *single]))
    asked = [(group.group_id, group.topics) for piece in found for group in piece.groups]
    assert asked == [("g0", None), ("g1", None), *[("g0", [topic])] * 3]
    steps = list(of(OffsetFetchRequest(groups=whole)).pieces(OffsetFetchRequest(groups=whole)))
    assert steps.count(None) == 898, "others have their turn while repeats are left out"
