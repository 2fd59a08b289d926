"""Plans reassignments that spread the load: after a broker joined, or before one leaves.

A replica moves only if that helps: where two brokers differ by two or more, the one with more gives one to
the other. First each topic is evened out, as its clients work on all of its partitions at once; then the
whole cluster, without undoing that. No move puts two replicas of different racks into one rack, or of
different hosts onto one. Last, leaders are evened out by the order of replicas, which moves no data.

Replicas on brokers that are down stay: those may come back at any moment. Drained brokers get nothing.
Partitions that are being reassigned are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.placement import Rack, level_leaders, racks_of, staying
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    """In the order of preference as leaders; a move may change the order only."""


def rebalance(image: ClusterImage) -> list[Move]:
    """Spread partitions over all live brokers, with as few copies as possible."""
    room = _Room(image)
    free = [seat for seat in room.seats if not seat.moving]
    for seat in free:
        room.spread_racks(seat)
    for seats in _by_topic(free).values():
        room.level(seats, Counter(replica for seat in seats for replica in seat.replicas))
    room.level(free, room.load, keeps_topics_level=True)
    _level_leaders(image, room.seats)
    return _moves(free)


def led_by_others(image: ClusterImage) -> list[tuple[str, int]]:
    """Partitions whose first replica could lead, and does not: after a restart, say. No data has to move."""
    return [
        (topic.name, state.index)
        for topic in image.topics.values()
        for state in topic.partitions
        if not state.unreadable
        and not (state.adding or state.removing)
        and state.leader != state.target[0]
        and state.target[0] in state.isr
        and state.target[0] in image.brokers
    ]


def drain(image: ClusterImage, node_id: int, *, fewer_replicas: bool = False) -> list[Move]:
    """Move every replica away from one broker.

    A replica that no other broker can take is an error; with `fewer_replicas` it is dropped, if another is
    left.
    """
    if node_id not in image.brokers and not holds_any(image, node_id):
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {node_id}")
    return drain_all(image, [node_id], fewer_replicas=fewer_replicas)


def drain_all(image: ClusterImage, node_ids: Collection[int], *, fewer_replicas: bool = False) -> list[Move]:
    """The same for several brokers at once: nothing goes from one of them to another."""
    room = _Room(image)
    for node_id in node_ids:
        room.close(node_id)
    leaving = [seat for seat in room.seats if not set(seat.replicas).isdisjoint(node_ids)]
    for seat in leaving:
        for node_id in [replica for replica in seat.replicas if replica in node_ids]:
            if fewer_replicas and len(seat.replicas) > 1 and not room.takers(seat, node_id):
                room.give_up(seat, node_id)
            else:
                room.replace(seat, node_id)
    return _moves(leaving)


class _Seat:
    """A partition and the replicas it should have."""

    __slots__ = ("before", "moving", "partition", "replicas", "topic")

    def __init__(self, topic: str, state: PartitionState) -> None:
        self.topic = topic
        self.partition = state.index
        self.before = state.target
        self.replicas = list(state.target)
        self.moving = bool(state.adding or state.removing)


class _Room:
    """The live brokers, what they hold, and the partitions to seat."""

    def __init__(self, image: ClusterImage) -> None:
        self.seats = [
            _Seat(topic.name, state)
            for topic in image.topics.values()
            for state in topic.partitions
            if not state.unreadable
        ]
        # Partition by partition over all topics, so that no topic gives more than its share.
        self.seats.sort(key=lambda seat: (seat.partition, seat.topic))
        self.load = Counter(replica for seat in self.seats for replica in seat.replicas)
        self._held = Counter((seat.topic, replica) for seat in self.seats for replica in seat.replicas)
        self._racks = racks_of(staying(image))
        self._hosts = {node: broker.host for node, broker in image.brokers.items()}

    def close(self, broker: int) -> None:
        """Assign nothing more to this broker."""
        self._racks.pop(broker, None)

    # -- a single replica ------------------------------------------------------------------------------

    def move(self, seat: _Seat, giver: int, taker: int) -> None:
        seat.replicas[seat.replicas.index(giver)] = taker
        for broker, change in ((giver, -1), (taker, 1)):
            self.load[broker] += change
            self._held[seat.topic, broker] += change

    def takers(self, seat: _Seat, giver: int) -> list[int]:
        """The brokers that could take this replica."""
        return [broker for broker in self._racks if broker not in seat.replicas and broker != giver]

    def give_up(self, seat: _Seat, giver: int) -> None:
        seat.replicas.remove(giver)
        self.load[giver] -= 1
        self._held[seat.topic, giver] -= 1

    def replace(self, seat: _Seat, giver: int) -> None:
        """Move a replica to the best broker for it."""
        staying = [replica for replica in seat.replicas if replica != giver]
        free = self.takers(seat, giver)
        if not free:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{seat.topic}-{seat.partition} has {len(seat.replicas)} replicas, and no other live broker "
                f"can take that of broker {giver}: start another broker, or reassign it to fewer replicas",
            )
        self.move(seat, giver, min(free, key=lambda broker: self._cost(seat, broker, staying)))

    def spread_racks(self, seat: _Seat) -> None:
        """Move replicas that share a rack to racks that have none of them."""
        for giver in reversed(seat.replicas.copy()):
            staying = [replica for replica in seat.replicas if replica != giver]
            used = {self._racks.get(replica) for replica in staying}
            free = [broker for broker, rack in self._racks.items() if rack not in used and broker != giver]
            if giver in self._racks and self._racks[giver] in used and free:
                self.move(seat, giver, min(free, key=lambda broker: self._cost(seat, broker, staying)))

    def _cost(self, seat: _Seat, broker: int, staying: Sequence[int]) -> tuple[int, ...]:
        rack = self._racks[broker]
        shared = sum(self._racks.get(replica) == rack for replica in staying)
        beside = sum(self._hosts.get(replica) == self._hosts[broker] for replica in staying)
        return shared, beside, self._held[seat.topic, broker], self.load[broker], broker

    # -- many --------------------------------------------------------------------------------------------

    def level(self, seats: Sequence[_Seat], load: Counter[int], *, keeps_topics_level: bool = False) -> None:
        """Move replicas between live brokers until `load`, which counts these seats, is even."""

        def fits(seat: _Seat, giver: int, taker: int) -> bool:
            held = self._held
            useful = not keeps_topics_level or held[seat.topic, giver] > held[seat.topic, taker]
            return useful and all(
                _keeps_apart(seat, giver, taker, domains) for domains in (self._racks, self._hosts)
            )

        if not self._racks:
            return
        total = sum(load[broker] for broker in self._racks)
        least, most = total // len(self._racks), -(-total // len(self._racks))
        # From brokers with too many replicas to brokers with too few, as long as there are both: otherwise a
        # replica could go to a broker that then has to give another one away. Only racks can make the last
        # step necessary.
        for keeps, wants in ((most, least), (least, least), (most, most), (0, total)):
            # Each move makes two brokers more alike, so the sweeps end; one without a move is the last.
            while any(
                self._sweep(seats, load, giver, keeps, wants, fits) for giver in self._fullest_first(load)
            ):
                pass

    def _fullest_first(self, load: Counter[int]) -> list[int]:
        return sorted(self._racks, key=lambda broker: (-load[broker], -self.load[broker], broker))

    def _sweep(
        self,
        seats: Iterable[_Seat],
        load: Counter[int],
        giver: int,
        keeps: int,
        wants: int,
        fits: Callable[[_Seat, int, int], bool],
    ) -> bool:
        """One pass over the replicas that a broker could give away; False if none was moved.

        The source keeps at least this many, and a broker at its target takes no more replicas.
        """
        moved = False
        for seat in seats:
            enough = min(load[giver] - 1, wants)
            takers = [broker for broker in self._racks if load[broker] < enough]
            if load[giver] <= keeps or not takers:
                break
            if giver not in seat.replicas:
                continue
            able = [b for b in takers if b not in seat.replicas and fits(seat, giver, b)]
            if able:
                taker = min(able, key=lambda broker: (load[broker], self.load[broker], broker))
                self.move(seat, giver, taker)
                if load is not self.load:
                    load[giver] -= 1
                    load[taker] += 1
                moved = True
        return moved


def _keeps_apart(seat: _Seat, giver: int, taker: int, domains: Mapping[int, Rack]) -> bool:
    """True if no two replicas come to share a rack, or a host, that did not before."""
    staying = [domains.get(replica) for replica in seat.replicas if replica != giver]
    return domains[taker] not in staying or domains[giver] in staying


def _by_topic(seats: Iterable[_Seat]) -> dict[str, list[_Seat]]:
    topics: dict[str, list[_Seat]] = {}
    for seat in seats:
        topics.setdefault(seat.topic, []).append(seat)
    return topics


def _level_leaders(image: ClusterImage, seats: Sequence[_Seat]) -> None:
    """Even out the preferred leaders; moving partitions, and replicas on brokers that are down, stay."""
    free = [seat for seat in seats if not seat.moving and all(r in image.brokers for r in seat.replicas)]
    chosen = set(map(id, free))
    level_leaders(
        [seat.replicas for seat in free],
        Counter(seat.replicas[0] for seat in seats if id(seat) not in chosen),
    )


def holds_any(image: ClusterImage, node_id: int) -> bool:
    """True if a broker has replicas, or is to have some."""
    return any(node_id in state.replicas for topic in image.topics.values() for state in topic.partitions)


def _moves(seats: Iterable[_Seat]) -> list[Move]:
    return [
        Move(topic=seat.topic, partition=seat.partition, replicas=tuple(seat.replicas))
        for seat in seats
        if tuple(seat.replicas) != seat.before
    ]
