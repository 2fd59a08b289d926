"""A member of a classic group, and how members agree on a protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from forebay.core.step import RequestInfo, Ticket
from forebay.errors import ProtocolError
from forebay.lazy import dataclass
from forebay.wire.codec.layout import STRING_BYTES_MAX
from forebay.wire.messages.join_group import JoinGroupRequest
from forebay.wire.state.consumer_protocol import read_topics
from forebay.wire.state.group_metadata import MemberMetadata


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """Metadata by protocol, the member's favourite first."""
    assignment: bytes = b""
    is_new: bool = False
    """It waits for its first generation and does not know its id yet, so it cannot send heartbeats."""
    join: Ticket | None = None
    sync: Ticket | None = None
    """The requests of this member that wait for the others."""

    @property
    def waits(self) -> bool:
        return self.join is not None or self.sync is not None

    def update(self, request: JoinGroupRequest) -> None:
        self.protocols = protocols_of(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms(request)

    def metadata(self, protocol: str | None) -> bytes:
        return self.protocols.get(protocol, b"") if protocol is not None else b""

    def record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


def new_member_id(prefix: str, unique: str) -> str:
    """An id for a member. It begins with the name that its client gives itself, as far as there is room."""
    room = STRING_BYTES_MAX - len(unique) - 1
    return f"{prefix.encode()[:room].decode(errors='ignore')}-{unique}"


def new_member(member_id: str, request: JoinGroupRequest, info: RequestInfo) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=info.client_id,
        client_host=info.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
        is_new=True,
    )


def restored_member(record: MemberMetadata, protocol: str | None) -> Member:
    """A member as the log describes it; only the chosen protocol is known."""
    timeout_ms = record.rebalance_timeout
    return Member(
        member_id=record.member_id,
        instance_id=record.group_instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=record.session_timeout if timeout_ms < 0 else timeout_ms,
        session_timeout_ms=record.session_timeout,
        protocols={protocol or "": record.subscription},
        assignment=record.assignment,
    )


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    return {protocol.name: bytes(protocol.metadata) for protocol in request.protocols}


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The rebalance timeout of a member. The first version of JoinGroup had one timeout for both."""
    timeout_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout_ms < 0 else timeout_ms


def common_protocols(members: Iterable[Member]) -> set[str]:
    """The protocols that all members support."""
    return set.intersection(*(set(member.protocols) for member in members))


def elect_protocol(members: Iterable[Member]) -> str:
    """Each member votes for its favourite among the common protocols; the most votes win."""
    voters = list(members)
    candidates = common_protocols(voters)
    votes = Counter(next(name for name in member.protocols if name in candidates) for member in voters)
    return votes.most_common(1)[0][0]


def subscribed_topics(members: Iterable[Member], protocol: str | None) -> frozenset[str] | None:
    """The topics of all members' subscriptions; None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for member in members:
            topics.update(read_topics(member.metadata(protocol)))
    except ProtocolError:
        return None
    return frozenset(topics)
