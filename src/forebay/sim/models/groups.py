"""The model of consumer groups: committed offsets, owners of partitions, and rules for both.

Offsets that the actors commit only grow. So an acknowledged commit is a lower bound of what a later fetch
may return, and the highest offset of any commit request is the upper bound.

Partitions are claimed in a generation, or with the consumer protocol in a member epoch. Either way a later
owner of a partition has a larger number than every owner before it: one number belongs to one member. A
member that was replaced may work on until it learns of that. Its commits must be refused once its successor
has got the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forebay.core.topic_partition import TopicPartition
from forebay.lazy import dataclass
from forebay.sim.models.facts import name_of

_Place = tuple[str, TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The partitions that a member got, and the generation or member epoch in which it got them."""

    group: str
    member_id: str
    epoch: int
    partitions: tuple[TopicPartition, ...]


class Groups:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.commits_count = 0
        self.claims_count = 0
        self._floors: dict[_Place, int] = {}
        self._ceilings: dict[_Place, int] = {}
        self._owners: dict[_Place, dict[int, str]] = {}
        """By generation or member epoch."""
        self._living: dict[str, set[str]] = {}
        self._forgotten: set[TopicPartition] = set()

    # -- offsets -----------------------------------------------------------------------------------------

    def asked(self, group: str, at: TopicPartition, offset: int) -> None:
        self._ceilings[group, at] = max(self._ceilings.get((group, at), -1), offset)

    def committed(self, group: str, at: TopicPartition, offset: int) -> None:
        self.commits_count += 1
        self._floors[group, at] = max(self._floors.get((group, at), -1), offset)

    def floor(self, group: str, at: TopicPartition) -> int:
        """The minimum that a fetch of the group's offset that begins now must return."""
        return self._floors.get((group, at), -1)

    def may_forget(self, at: TopicPartition) -> None:
        """Note that the partition may be removed, and with it the groups' commits for it."""
        self._forgotten.add(at)

    def fetched(self, group: str, at: TopicPartition, offset: int, floor: int) -> None:
        ceiling = self._ceilings.get((group, at), -1)
        if at in self._forgotten:
            floor = -1
        if not floor <= offset <= ceiling:
            self._fail(
                f"group {group} had committed {floor} for {name_of(at)} and asked for at most {ceiling}, "
                f"but {offset} came back"
            )

    def places(self) -> list[tuple[str, TopicPartition]]:
        """Groups and partitions for which offsets have been committed, or may have been."""
        return sorted(self._ceilings)

    # -- members -----------------------------------------------------------------------------------------

    def entered(self, group: str, member_id: str) -> None:
        self._living.setdefault(group, set()).add(member_id)

    def gone(self, group: str, member_id: str) -> None:
        self._living.setdefault(group, set()).discard(member_id)

    def claim(self, claim: Claim) -> None:
        """Note that a member got its partitions."""
        self.claims_count += 1
        for at in claim.partitions:
            owners = self._owners.setdefault((claim.group, at), {})
            other = owners.setdefault(claim.epoch, claim.member_id)
            if other != claim.member_id:
                self._fail(
                    f"{name_of(at)} was given to {other} and to {claim.member_id} in epoch {claim.epoch} "
                    f"of group {claim.group}"
                )

    def successor(self, group: str, at: TopicPartition, member_id: str, epoch: int) -> str | None:
        """Another member that is known to have got the partition after this one."""
        owners = self._owners.get((group, at), {})
        newest = max(owners, default=-1)
        return owners[newest] if newest > epoch and owners[newest] != member_id else None

    def not_overtaken(self, group: str, at: TopicPartition, member_id: str, successor: str | None) -> None:
        """Note an accepted commit; `successor` is the member that owned the partition when it was sent."""
        if successor is not None:
            self._fail(
                f"group {group} accepted a commit of {member_id} for {name_of(at)}, owned by {successor}"
            )

    def unowned(self, group: str, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions whose last known owner is not alive."""
        living = self._living.get(group, set())
        return [at for at in partitions if self._last_owner(group, at) not in living]

    def _last_owner(self, group: str, at: TopicPartition) -> str:
        owners = self._owners.get((group, at), {})
        return owners[max(owners)] if owners else ""
