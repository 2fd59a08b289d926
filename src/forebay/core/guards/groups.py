"""Guards of consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.core.acls.bindings import CLUSTER_NAME, Operation
from forebay.core.acls.operations import NOT_ASKED
from forebay.core.guards.guard import (
    CLUSTER,
    DENIED,
    GROUP,
    TOPIC,
    TRANSACTION,
    Access,
    Guard,
    Narrowed,
    Refused,
    Verdict,
    adding,
    changed,
    each,
    explanation,
    on_group,
    split,
    split_by_code,
    with_code,
)
from forebay.errors import ErrorCode
from forebay.wire.fields import Struct
from forebay.wire.messages import delete_groups as deletion
from forebay.wire.messages import describe_groups as describing
from forebay.wire.messages import find_coordinator as finding
from forebay.wire.messages import offset_commit as committing
from forebay.wire.messages import offset_delete as forgetting
from forebay.wire.messages import offset_fetch as fetching
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from forebay.wire.messages.heartbeat import HeartbeatResponse
from forebay.wire.messages.join_group import JoinGroupResponse
from forebay.wire.messages.leave_group import LeaveGroupResponse
from forebay.wire.messages.list_groups import ListGroupsResponse
from forebay.wire.messages.sync_group import SyncGroupResponse

_NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_GROUPS_FROM = 8
_ERROR_CODE_FROM = 2
_HIDDEN_TOPICS = "The group uses topics that the client is not authorized to describe."


# -- members ---------------------------------------------------------------------------------------------

join_group: Guard = on_group(
    Operation.READ, lambda _, code: JoinGroupResponse(error_code=code, protocol_name="")
)
sync_group: Guard = on_group(Operation.READ, with_code(SyncGroupResponse))
heartbeat: Guard = on_group(Operation.READ, with_code(HeartbeatResponse))
leave_group: Guard = on_group(Operation.READ, with_code(LeaveGroupResponse))


def member_heartbeat(response: type[Struct]) -> Guard:
    """ConsumerGroupHeartbeat and ShareGroupHeartbeat: a member names the topics that it wants."""
    refuse = with_code(response)

    def guard(access: Access, _version: int, request: Any) -> Verdict:
        if access.refuses(Operation.READ, GROUP, request.group_id):
            return Refused(refuse(request, _NO_GROUP))
        names = request.subscribed_topic_names or ()
        if any(access.refuses(Operation.DESCRIBE, TOPIC, name) for name in names):
            return Refused(refuse(request, _NO_TOPIC))
        return None

    return guard


consumer_group_heartbeat: Guard = member_heartbeat(ConsumerGroupHeartbeatResponse)
"""A pattern is not refused: it matches what the member may describe (`core/groups/consumer`)."""


# -- offsets ---------------------------------------------------------------------------------------------


def offset_commit(access: Access, _version: int, request: committing.OffsetCommitRequest) -> Verdict:
    response = committing.OffsetCommitResponse
    if access.refuses(Operation.READ, GROUP, request.group_id):
        return Refused(response(topics=[_not_committed(topic, _NO_GROUP) for topic in request.topics]))
    left, refused = split_by_code(request.topics, lambda topic: access.topic_error(Operation.READ, topic))
    if not refused:
        return None
    answers = [_not_committed(topic, code) for topic, code in refused]
    if not left:
        return Refused(response(topics=answers))
    return Narrowed(changed(request, topics=left), adding("topics", answers))


def _not_committed(topic: Any, code: ErrorCode) -> committing.OffsetCommitResponseTopic:
    return committing.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            committing.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def offset_fetch(access: Access, version: int, request: fetching.OffsetFetchRequest) -> Verdict:
    if version >= _GROUPS_FROM:
        return _fetch_of_groups(access, request)
    if access.refuses(Operation.DESCRIBE, GROUP, request.group_id):
        if version >= _ERROR_CODE_FROM:
            return Refused(fetching.OffsetFetchResponse(error_code=_NO_GROUP))
        return Refused(
            fetching.OffsetFetchResponse(
                topics=[_not_fetched(each, _NO_GROUP) for each in request.topics or ()]
            )
        )
    if request.topics is None:
        return Narrowed(request, lambda response: changed(response, topics=_visible(access, response.topics)))
    left, refused = split(request.topics, lambda topic: access.refuses(Operation.DESCRIBE, TOPIC, topic.name))
    if not refused:
        return None
    answers = [_not_fetched(topic, _NO_TOPIC) for topic in refused]
    if not left:
        return Refused(fetching.OffsetFetchResponse(topics=answers))
    return Narrowed(changed(request, topics=left), adding("topics", answers))


def _not_fetched(topic: Any, code: ErrorCode) -> fetching.OffsetFetchResponseTopic:
    return fetching.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            fetching.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _visible(access: Access, topics: list[Any]) -> list[Any]:
    """The topics with offsets of a group that the client may see."""
    shown = []
    for topic in topics:
        name = access.named(topic) if hasattr(topic, "topic_id") else topic.name
        if name is not None and access.may(Operation.DESCRIBE, TOPIC, name):
            shown.append(topic)
    return shown


def _fetch_of_groups(access: Access, request: fetching.OffsetFetchRequest) -> Verdict:
    """Check each group by itself: as a whole, and then topic by topic."""
    left: list[Any] = []
    denied: list[Any] = []
    added: dict[str, list[Any]] = {}
    sifted: set[str] = set()
    for group in request.groups:
        if access.refuses(Operation.DESCRIBE, GROUP, group.group_id):
            denied.append(fetching.OffsetFetchResponseGroup(group_id=group.group_id, error_code=_NO_GROUP))
        elif group.topics is None:
            sifted.add(group.group_id)
            left.append(group)
        else:
            topics, refused = split_by_code(
                group.topics, lambda each: access.topic_error(Operation.DESCRIBE, each)
            )
            added[group.group_id] = [_not_fetched_by_group(topic, code) for topic, code in refused]
            left.append(changed(group, topics=topics) if refused else group)
    if not (denied or sifted or any(added.values())):
        return None

    def complete(response: Any) -> Any:
        for group in response.groups:
            if group.group_id in sifted:
                group.topics = _visible(access, group.topics)
            elif not group.error_code:
                group.topics = [*group.topics, *added.get(group.group_id, ())]
        return changed(response, groups=[*response.groups, *denied])

    if not left:
        return Refused(fetching.OffsetFetchResponse(groups=denied))
    return Narrowed(changed(request, groups=left), complete)


def _not_fetched_by_group(topic: Any, code: ErrorCode) -> fetching.OffsetFetchResponseTopics:
    return fetching.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            fetching.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def offset_delete(access: Access, version: int, request: forgetting.OffsetDeleteRequest) -> Verdict:
    if access.refuses(Operation.DELETE, GROUP, request.group_id):
        return Refused(forgetting.OffsetDeleteResponse(error_code=_NO_GROUP))
    return _offset_delete_topics(access, version, request)


_offset_delete_topics: Guard = each(
    items="topics",
    results="topics",
    response=forgetting.OffsetDeleteResponse,
    is_refused=lambda access, topic: access.refuses(Operation.READ, TOPIC, topic.name),
    denied=lambda topic: forgetting.OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            forgetting.OffsetDeleteResponsePartition(partition_index=at.partition_index, error_code=_NO_TOPIC)
            for at in topic.partitions
        ],
    ),
)


# -- administration --------------------------------------------------------------------------------------

_KINDS = {
    0: (Operation.DESCRIBE, GROUP),
    1: (Operation.DESCRIBE, TRANSACTION),
    2: (Operation.CLUSTER_ACTION, CLUSTER),
}
"""The operation and resource that FindCoordinator requires, by the type of the key."""
_BATCHED_FROM = 4


def find_coordinator(access: Access, version: int, request: finding.FindCoordinatorRequest) -> Verdict:
    operation, kind = _KINDS.get(request.key_type, (Operation.CLUSTER_ACTION, CLUSTER))
    code = DENIED[kind]

    def is_refused(key: str) -> bool:
        return access.refuses(operation, kind, CLUSTER_NAME if kind is CLUSTER else key)

    def denied(key: str) -> finding.Coordinator:
        return finding.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=explanation(code)
        )

    if version < _BATCHED_FROM:
        if not is_refused(request.key):
            return None
        return Refused(
            finding.FindCoordinatorResponse(
                error_code=code, error_message=explanation(code), node_id=-1, host="", port=-1
            )
        )
    left, refused = split(request.coordinator_keys, is_refused)
    if not refused:
        return None
    answers = [denied(key) for key in refused]
    if not left:
        return Refused(finding.FindCoordinatorResponse(coordinators=answers))
    return Narrowed(changed(request, coordinator_keys=left), adding("coordinators", answers))


def list_groups(access: Access, _version: int, request: Any) -> Verdict:
    """Never an error: clients see groups that they may describe; all, if they may describe the cluster."""
    if access.may(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME):
        return None
    if not access.may_describe_some(GROUP):
        return Refused(ListGroupsResponse())

    def complete(response: Any) -> Any:
        shown = [group for group in response.groups if access.may(Operation.DESCRIBE, GROUP, group.group_id)]
        return changed(response, groups=shown)

    return Narrowed(request, complete)


delete_groups: Guard = each(
    items="groups_names",
    results="results",
    response=deletion.DeleteGroupsResponse,
    is_refused=lambda access, name: access.refuses(Operation.DELETE, GROUP, name),
    denied=lambda name: deletion.DeletableGroupResult(group_id=name, error_code=_NO_GROUP),
)


def _described(
    ids: str, response: type[Struct], denied: Callable[[str], Any], hide: Callable[[Access, Any], None]
) -> Guard:
    """`hide`: removes from a described group what the client may not see."""

    def guard(access: Access, _version: int, request: Any) -> Verdict:
        left, refused = split(
            getattr(request, ids), lambda name: access.refuses(Operation.DESCRIBE, GROUP, name)
        )
        answers = [denied(name) for name in refused]
        if not left:
            return Refused(response(groups=answers))

        def complete(whole: Any) -> Any:
            for group in whole.groups:
                if group.authorized_operations != NOT_ASKED:
                    group.authorized_operations = access.operations(GROUP, group.group_id)
                hide(access, group)
            return changed(whole, groups=[*whole.groups, *answers])

        return Narrowed(changed(request, **{ids: left}), complete)

    return guard


describe_groups: Guard = _described(
    "groups",
    describing.DescribeGroupsResponse,
    lambda name: describing.DescribedGroup(
        group_id=name, error_code=_NO_GROUP, error_message=explanation(_NO_GROUP)
    ),
    lambda _access, _group: None,  # assignments of classic groups are opaque to brokers
)


def describe_members(response: type[Struct], group: type[Struct], assignments: tuple[str, ...]) -> Guard:
    """ConsumerGroupDescribe and ShareGroupDescribe: the assignments of members name topics."""

    def hide(access: Access, described: Any) -> None:
        topics = {
            topic.topic_name
            for member in described.members
            for name in assignments
            for topic in getattr(member, name).topic_partitions
        }
        if all(access.may(Operation.DESCRIBE, TOPIC, name) for name in topics):
            return
        described.error_code, described.error_message = _NO_TOPIC, _HIDDEN_TOPICS
        described.members = []

    return _described(
        "group_ids",
        response,
        lambda name: group(group_id=name, error_code=_NO_GROUP, error_message=explanation(_NO_GROUP)),
        hide,
    )
