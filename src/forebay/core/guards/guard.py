"""Defines guards: a guard checks a request before its handler sees it.

A guard returns
  - None: everything is allowed;
  - Refused, with the response: the handler never sees the request;
  - Narrowed, with the allowed part of the request, and a function that completes its response.

So a handler knows nothing of access control, and denied requests change nothing. Guards are pure. `table.py`
lists all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from forebay.core.acls.bindings import CLUSTER_NAME, Operation, ResourceType
from forebay.errors import ErrorCode
from forebay.lazy import dataclass
from forebay.wire.fields import ZERO_UUID, Struct
from forebay.wire.fields import changed as changed

if TYPE_CHECKING:
    from forebay.core.acls.authorizer import Authorizer
    from forebay.core.cluster.image import ClusterImage

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID

DENIED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for a client that may not use a resource of a type."""

_BROKERS_WORK = frozenset(
    {
        (TOPIC, Operation.READ),
        (TOPIC, Operation.WRITE),
        (TOPIC, Operation.DESCRIBE),
        (GROUP, Operation.DESCRIBE),
    }
)
"""The operations that brokers request from each other as clients: to fill views, to write dead letters."""


class Resource(NamedTuple):
    operation: Operation
    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation.name} {self.kind.name}:{self.name}"


class Access:
    """The permissions of the sender of one request."""

    __slots__ = (
        "_authorizer",
        "_host",
        "_is_broker",
        "_principal",
        "creates_dead_letter_topics",
        "creates_topics",
        "image",
        "refused",
    )

    def __init__(
        self,
        authorizer: Authorizer,
        principal: str,
        host: str,
        image: ClusterImage,
        *,
        is_broker: bool = False,
        creates_topics: bool = False,
        creates_dead_letter_topics: bool = False,
    ) -> None:
        """`is_broker`: the sender says that it is a broker, which it has to prove by ClusterAction.
        `creates_topics`: topics are created when they are first asked for; `creates_dead_letter_topics`: when
        a share group that names them has dead letters."""
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._is_broker = is_broker
        self.image = image
        self.creates_topics = creates_topics
        self.creates_dead_letter_topics = creates_dead_letter_topics
        self.refused: list[Resource] = []
        """The refused resources, for the audit log."""

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        allowed = self._authorizer.allows(self._principal, self._host, operation, kind, name)
        if not allowed and self._is_broker and (kind, operation) in _BROKERS_WORK:
            return self.may(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
        return allowed

    def refuses(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """The opposite of `allows`, for refusals that the client is told of: they go to the audit log."""
        if self.may(operation, kind, name):
            return False
        self.refused.append(Resource(operation, kind, name))
        return True

    def refuses_cluster(self, operation: Operation) -> bool:
        return self.refuses(operation, CLUSTER, CLUSTER_NAME)

    def may_some(self, operation: Operation, kind: ResourceType) -> bool:
        return self._authorizer.allows_some(self._principal, self._host, operation, kind)

    def may_describe_some(self, kind: ResourceType) -> bool:
        """False if there is no resource of the type that the client may see: it need not be looked for."""
        return self.may_some(Operation.DESCRIBE, kind) or (
            self._is_broker and self.may(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
        )

    def refuses_prefix(self, operation: Operation, kind: ResourceType, prefix: str) -> bool:
        """True if the operation is not allowed with all names that have this prefix."""
        if self._authorizer.allows_all_with(self._principal, self._host, operation, kind, prefix):
            return False
        self.refused.append(Resource(operation, kind, f"{prefix}*"))
        return True

    def operations(self, kind: ResourceType, name: str) -> int:
        return self._authorizer.operations(self._principal, self._host, kind, name)

    def cluster_operations(self) -> int:
        """As in Kafka: a client that may not describe the cluster is told of no operation."""
        if not self.may(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME):
            return 0
        return self.operations(CLUSTER, CLUSTER_NAME)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic or view; None if none has this id, which the handler then reports."""
        image = self.image
        return image.topic_names.get(topic_id) or image.view_names.get(topic_id)

    def refuses_creation(self, name: str) -> bool:
        """True if a topic of this name would be new, and may not be created."""
        if name in self.image.topics or name in self.image.views:
            return False
        return not self.may(Operation.CREATE, CLUSTER, CLUSTER_NAME) and self.refuses(
            Operation.CREATE, TOPIC, name
        )

    def named(self, topic: Any) -> str | None:
        """The name of a topic that a request names by its name, or by its id.

        A request may give both, of two topics. Handlers then use the id, or refuse it, so the id decides here
        too.
        """
        name: str | None = topic.name
        return name if topic.topic_id == ZERO_UUID else self.topic_name(topic.topic_id)

    def refuses_topic(self, operation: Operation, topic: Any) -> bool:
        """True if the topic is refused. An unknown id passes: the handler, or a check of its answer, finds
        it."""
        name = self.named(topic)
        return name is not None and self.refuses(operation, TOPIC, name)

    def topic_error(self, operation: Operation, topic: Any) -> ErrorCode | None:
        """Like `refuses_topic`, for handlers that may look up the id later: the error, or None if allowed.

        By then a topic may have the id: the client knows it, and this broker does not yet. Then nobody would
        have checked that the client may use it.
        """
        name = self.named(topic)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return DENIED[TOPIC] if self.refuses(operation, TOPIC, name) else None


@dataclass(frozen=True, slots=True)
class Refused:
    response: Any
    """None: the protocol has no response, and the connection is closed."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    request: Any
    complete: Callable[[Any], Any]
    """Completes the handler's response: adds what was denied, removes what must not be seen."""


Verdict = Refused | Narrowed | None
Guard = Callable[[Access, int, Any], Verdict]
"""Takes the client's permissions, the version of a request, and the request."""
Shortcut: TypeAlias = "Callable[[Authorizer, str, str, ClusterImage, Any], bool]"
"""Takes rules, principal, host, image and request: True if the guard would surely let it pass. For hot
paths."""


def split(items: Iterable[Any], is_refused: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """The allowed items and the refused items."""
    left: list[Any] = []
    refused: list[Any] = []
    for item in items:
        (refused if is_refused(item) else left).append(item)
    return left, refused


def split_by_code(
    items: Iterable[Any], code_of: Callable[[Any], ErrorCode | None]
) -> tuple[list[Any], list[tuple[Any, ErrorCode]]]:
    """The allowed items, and the refused ones with their errors."""
    left: list[Any] = []
    refused: list[tuple[Any, ErrorCode]] = []
    for item in items:
        code = code_of(item)
        if code is None:
            left.append(item)
        else:
            refused.append((item, code))
    return left, refused


def unguarded(_access: Access, _version: int, _request: Any) -> Verdict:
    """Allow all. For APIs that anybody may use, or whose handlers check each partition of a session."""
    return None


def whole(
    operation: Operation,
    kind: ResourceType,
    name_of: Callable[[Any], str],
    refuse: Callable[[Any, ErrorCode], Any],
) -> Guard:
    """A guard by which one resource decides about the request as a whole."""

    def guard(access: Access, _version: int, request: Any) -> Verdict:
        if access.refuses(operation, kind, name_of(request)):
            return Refused(refuse(request, DENIED[kind]))
        return None

    return guard


def on_cluster(operation: Operation, refuse: Callable[[Any, ErrorCode], Any]) -> Guard:
    return whole(operation, CLUSTER, lambda _: CLUSTER_NAME, refuse)


def on_group(operation: Operation, refuse: Callable[[Any, ErrorCode], Any]) -> Guard:
    return whole(operation, GROUP, lambda request: request.group_id or "", refuse)


def each(
    *,
    items: str,
    results: str,
    response: type[Struct],
    is_refused: Callable[[Access, Any], bool],
    denied: Callable[[Any], Any],
) -> Guard:
    """A guard for every item of a list: refused items are answered beside the others."""

    def guard(access: Access, _version: int, request: Any) -> Verdict:
        left, refused = split(getattr(request, items), lambda item: is_refused(access, item))
        if not refused:
            return None
        answers = [denied(item) for item in refused]
        if not left:
            return Refused(response(**{results: answers}))
        return Narrowed(changed(request, **{items: left}), adding(results, answers))

    return guard


def adding(results: str, answers: list[Any]) -> Callable[[Any], Any]:
    """A function that appends answers to those of the handler."""
    return lambda response: changed(response, **{results: [*getattr(response, results), *answers]})


def with_code(response: type[Struct]) -> Callable[[Any, ErrorCode], Any]:
    """A response that has nothing but an error."""

    def refuse(_request: Any, code: ErrorCode) -> Any:
        if "error_message" in response.FIELDS:
            return response(error_code=code, error_message=explanation(code))
        return response(error_code=code)

    return refuse


def explanation(code: ErrorCode) -> str:
    """The error message that goes with a code."""
    return _EXPLANATIONS[code]


_EXPLANATIONS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional id authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
}
