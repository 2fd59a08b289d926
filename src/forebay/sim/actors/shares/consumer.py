"""A consumer of a share group, as the protocol sees it: sessions, fetches and acknowledgements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client, Failed
from forebay.sim.actors.shares.sessions import (
    RELEASE,
    Said,
    Session,
    acknowledgements,
    delivered_values,
)
from forebay.sim.models.facts import name_of
from forebay.sim.models.messages import Model
from forebay.sim.models.shares import Hold, Place, Term
from forebay.wire.messages import share_acknowledge as acknowledge_message
from forebay.wire.messages import share_fetch as fetch_message

_WAITS_MS = (0, 100, 300)
_DELIVERY_S_MAX = 0.9
"""A lock lasts longer. So an answer that came sooner, without an error, has all that was acquired."""
_MAX_BYTES = 16 * 1024
FINAL_EPOCH = -1
SESSION_ERRORS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_NOT_DONE = SESSION_ERRORS | {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
"""Errors that say that an acknowledgement was not carried out."""


class ShareConsumer(Actor):
    """The consumer's side of ShareFetch and ShareAcknowledge, told to the model as it happens."""

    def __init__(
        self, client: Client, model: Model, group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model)
        self.group = group
        self.sessions: dict[Address, Session] = {}
        self.partitions = list(partitions)
        self.lives = 0
        """Each is another member."""
        self.given: set[Place] = set()
        """What it was given in this life."""
        self.has_missed_some = False
        """Whether it may have been given more."""

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"

    @abstractmethod
    def decide(self, session: Session) -> list[Said]:
        """What to say about some of what it holds."""

    def end_sessions(self, *, is_seen: bool) -> None:
        """Go on without any session; whether the brokers learn of it."""
        self.sessions.clear()
        for address in self.client.brokers:
            self._leave(address, is_seen=is_seen)

    def _leave(self, address: Address, *, is_seen: bool) -> None:
        if is_seen:
            self.client.hang_up(address)
        else:
            self.client.reconnect(address)

    def session_failed(self, session: Session) -> None:
        """Go on without a session. Where locks last, its broker must learn of it."""
        if self.sessions.get(session.address) is session:
            del self.sessions[session.address]
        is_seen = not self.model.shares.rules.locks_run_out or self.chance.random() < 0.5
        self._leave(session.address, is_seen=is_seen)
        for at in sorted(session.partitions):
            self.client.forget(at)

    # -- fetching -------------------------------------------------------------------------------------

    async def fetch_all(self, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[Address, list[TopicPartition]] = {}
        for at in partitions:
            address, _ = await self.client.leader(at)
            by_leader.setdefault(address, []).append(at)
        for address, wanted in by_leader.items():
            await self.fetch(address, wanted)

    async def fetch(self, address: Address, wanted: Sequence[TopicPartition]) -> None:
        session = self.sessions.setdefault(address, Session(address))
        said = self.decide(session) if session.epoch and self.chance.random() < 0.5 else []
        gone = sorted(session.partitions.difference(wanted))
        request = await self._fetch_request(session, wanted, said, gone)
        session.partitions = {*wanted, *(at for (at, _), _ in said)}.difference(gone)
        at_stake = sorted(session.partitions)
        asked_at = self.world.now
        terms = {at: self._term(address, at) for at in at_stake}
        self._speak(session, said)
        try:
            response = await self.client.ask(address, request, fetch_message.ShareFetchResponse)
        except Failed:
            self._miss(at_stake)
            self.session_failed(session)
            return
        if response.error_code:
            self._session_refused(session, said, ErrorCode(response.error_code))
            return
        session.epoch += 1
        self.model.shares.lives(session.holds.values(), asked_at)
        for topic in response.responses:
            for data in topic.partitions:
                at = (wanted[0][0], data.partition_index)
                now_term = self._term(address, at)
                self._take(session, at, data, asked_at, now_term if terms.get(at) == now_term else None)
                self._answered(at, said, ErrorCode(data.acknowledge_error_code))
        if self.world.now - asked_at > _DELIVERY_S_MAX:
            self._miss(at_stake)

    def _miss(self, partitions: Iterable[TopicPartition]) -> None:
        """Something may have been acquired that did not arrive."""
        self.has_missed_some = True
        for at in partitions:
            self.model.shares.doubt(at, self.world.now)

    async def _fetch_request(
        self,
        session: Session,
        wanted: Sequence[TopicPartition],
        said: Sequence[Said],
        gone: Sequence[TopicPartition],
    ) -> fetch_message.ShareFetchRequest:
        topic_id = await self.client.topic_id(self.partitions[0][0])
        acks = acknowledgements(said, one_type_each=self.chance.random() < 0.5)
        partitions = [
            fetch_message.FetchPartition(partition_index=at[1], acknowledgement_batches=acks.get(at, []))
            for at in sorted({*wanted, *acks})
        ]
        forgotten = fetch_message.ForgottenTopic(topic_id=topic_id, partitions=[at[1] for at in gone])
        return fetch_message.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=self.chance.choice(_WAITS_MS),
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            max_records=self.chance.choice((1, 5, 20)),
            batch_size=self.chance.choice((1, 5, 20)),
            share_acquire_mode=self.chance.choice((0, 1)),
            topics=[fetch_message.FetchTopic(topic_id=topic_id, partitions=partitions)],
            forgotten_topics_data=[forgotten] if gone else [],
        )

    def _term(self, address: Address, at: TopicPartition) -> Term | None:
        return self.model.shares.term_of(address[0], at)

    def _take(
        self,
        session: Session,
        at: TopicPartition,
        data: fetch_message.PartitionData,
        asked_at: float,
        term: Term | None,
    ) -> None:
        """Take what was delivered from one partition."""
        if data.error_code:
            self._miss([at])
            self.client.forget(at)
        values, is_damaged = delivered_values(data)
        for acquired in data.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                hold = Hold(
                    place=(at, offset),
                    count=acquired.delivery_count,
                    asked_at=asked_at,
                    received_at=self.world.now,
                    host=session.address[0],
                    term=term,
                    session=session,
                    member=self.member_id,
                )
                self.model.shares.delivered(hold)
                session.holds[at, offset] = hold
                self.given.add((at, offset))
                value = values.get(offset)
                if value is not None:
                    session.values[at, offset] = value
                    self.model.read(self.name, at, offset, value, committed=False)
                elif not is_damaged:
                    self.world.fail(f"{self.name} was given {name_of(at, offset)} without the record")

    # -- acknowledging --------------------------------------------------------------------------------

    def forget_record(self, session: Session, place: Place) -> None:
        session.holds.pop(place, None)
        session.values.pop(place, None)

    async def say(self, session: Session, said: Sequence[Said], *, epoch: int | None = None) -> None:
        if not said and epoch is None:
            return
        self._speak(session, said)
        session.said = list(said)
        try:
            await self._acknowledge(session, said, session.epoch if epoch is None else epoch)
        except Failed:
            self.session_failed(session)
            if said and epoch is None and self.chance.random() < 0.5:
                await self._say_again(session, said)
            raise

    async def _say_again(self, session: Session, said: Sequence[Said]) -> None:
        """The answer got lost: say the same on another connection, where the session may go on."""
        self.client.reconnect(session.address)
        for place, _ in (each for each in said if each.finishes):
            self.model.shares.asked(place)
        await self._acknowledge(session, said, session.epoch)

    def _speak(self, session: Session, said: Iterable[Said]) -> None:
        """From now on the broker may know what was said."""
        for each in said:
            self.forget_record(session, each.place)
            self.model.shares.let_go(each.place, session)
            if each.finishes:
                self.model.shares.asked(each.place)

    async def _acknowledge(self, session: Session, said: Sequence[Said], epoch: int) -> None:
        asked_at = self.world.now
        response = await self.ask_to_acknowledge(session, said, epoch)
        if response.error_code:
            self._session_refused(session, said, ErrorCode(response.error_code))
            return
        session.epoch += 1
        if epoch != FINAL_EPOCH:
            self.model.shares.lives(session.holds.values(), asked_at)
        for topic in response.responses:
            for data in topic.partitions:
                self._answered((said[0].place[0][0], data.partition_index), said, ErrorCode(data.error_code))

    async def ask_to_acknowledge(
        self, session: Session, said: Sequence[Said], epoch: int
    ) -> acknowledge_message.ShareAcknowledgeResponse:
        topic_id = await self.client.topic_id(self.partitions[0][0])
        acks = acknowledgements(said, one_type_each=self.chance.random() < 0.5)
        partitions = [
            acknowledge_message.AcknowledgePartition(partition_index=at[1], acknowledgement_batches=batches)
            for at, batches in acks.items()
        ]
        request = acknowledge_message.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=[acknowledge_message.AcknowledgeTopic(topic_id=topic_id, partitions=partitions)],
        )
        return await self.client.ask(session.address, request, acknowledge_message.ShareAcknowledgeResponse)

    def _session_refused(self, session: Session, said: Iterable[Said], code: ErrorCode) -> None:
        """The whole request was refused; the next one opens a session."""
        if code not in (*SESSION_ERRORS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self.world.fail(f"{self.name} was refused by {session.address[0]}: {code.name}")
        for each in said:
            if each.finishes:
                self.model.shares.refused(each.place)
        self.session_failed(session)

    def _answered(self, at: TopicPartition, said: Iterable[Said], code: ErrorCode) -> None:
        """What was said about the records of a partition was answered."""
        for place, kind in said:
            if place[0] != at or kind == RELEASE:
                continue
            if code is ErrorCode.NONE:
                self.model.shares.finished(place, self.world.now)
            elif code in _NOT_DONE:
                self.model.shares.refused(place)
        if code not in (ErrorCode.NONE, *_NOT_DONE):
            self.client.forget(at)
