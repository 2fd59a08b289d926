"""The base of share group members: sessions at brokers, in which they fetch and acknowledge.

They report their deliveries, and the brokers' answers, to the model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import GROUP, Client, Failed, Refused, check
from forebay.sim.actors.shares.sessions import Said, Session, acknowledgements, delivered_records
from forebay.sim.models.facts import name_of
from forebay.sim.models.messages import Model
from forebay.sim.models.share_records import RENEW, UNKNOWN, Hold, Place, Term
from forebay.wire.messages import share_acknowledge as acknowledge_message
from forebay.wire.messages import share_fetch as fetch_message
from forebay.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_HEARTBEAT_S = 0.7
_WAITS_MS = (0, 100, 300)
_DELIVERY_S_MAX = 0.9
"""A slower answer may be on its way, and everything that was delivered with it counts already."""
_MAX_BYTES = 16 * 1024
_FINAL_EPOCH = -1
_LEAVE_EPOCH = -1

SESSION_ERRORS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_NOT_DONE = SESSION_ERRORS | {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
"""Errors that mean that an acknowledgement was not carried out."""


class ShareConsumer(Actor):
    def __init__(
        self, client: Client, model: Model, group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model)
        self.group = group
        self.shares = model.shares
        self.sessions: dict[Address, Session] = {}
        self.partitions = list(partitions)
        self.assigned: list[TopicPartition] = []
        self.lives = 0
        self.given: set[Place] = set()
        """The records that it was given in this life."""
        self.has_missed_some = False
        """True if it may have been given more."""
        self.epoch = 0
        """The member epoch; 0 joins the group."""
        self.heartbeat_due_at = 0.0

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"

    @abstractmethod
    def decide(self, session: Session) -> list[Said]:
        """Decide what to say about some of the records that it holds."""

    # -- membership --------------------------------------------------------------------------------------

    async def stay(self) -> None:
        """Be a member of the group, and learn which partitions it has."""
        if self.world.now < self.heartbeat_due_at:
            return
        try:
            response = await self._heartbeat(self.epoch)
        except Refused as refusal:
            if refusal.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self.world.fail(f"{self.name} is no member: {refusal}")
            self.epoch = 0
            raise
        self.epoch = response.member_epoch
        self.heartbeat_due_at = self.world.now + _HEARTBEAT_S
        if response.assignment is not None:
            self.assigned = [
                at
                for at in self.partitions
                for topic in response.assignment.topic_partitions
                if topic.topic_id == await self.client.topic_id(at[0]) and at[1] in topic.partitions
            ]

    async def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        topics = sorted({topic for topic, _ in self.partitions})
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics if epoch == 0 else None,
        )
        response = await self.client.ask_coordinator(GROUP, self.group, request, ShareGroupHeartbeatResponse)
        check(response.error_code)
        return response

    async def leave(self) -> None:
        """Leave the group; its sessions do not end by that."""
        self.epoch, self.heartbeat_due_at = 0, 0.0
        try:
            await self._heartbeat(_LEAVE_EPOCH)
        except (Failed, Refused):
            self.client.forget_coordinator(GROUP, self.group)

    async def end_sessions(self) -> None:
        for session in list(self.sessions.values()):
            if session.epoch:
                said = [each for each in self.decide(session) if each.kind != RENEW]
                try:
                    await self.say(session, said, epoch=_FINAL_EPOCH)
                except Failed:
                    continue
        self.part(is_seen=True)

    def part(self, *, is_seen: bool) -> None:
        """Continue without any session; True if the brokers are told."""
        self.sessions.clear()
        for address in self.client.brokers:
            self._leave_broker(address, is_seen=is_seen)

    def _leave_broker(self, address: Address, *, is_seen: bool) -> None:
        if is_seen:
            self.client.hang_up(address)
        else:
            self.client.reconnect(address)

    def failed(self, session: Session) -> None:
        """Continue without a session. Where locks last, its broker must be told."""
        if self.sessions.get(session.address) is session:
            del self.sessions[session.address]
        is_seen = not self.shares.rules.locks_run_out or self.chance.random() < 0.5
        self._leave_broker(session.address, is_seen=is_seen)
        for at in sorted(session.partitions):
            self.client.forget(at)

    # -- fetching ----------------------------------------------------------------------------------------

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
        # An answer may be on its way for long, and others ask meanwhile about its records.
        late_at: list[float] = []
        late = self.client.loop.call_later(_DELIVERY_S_MAX, self._is_late, at_stake, late_at)
        self.shares.begin_fetch(at_stake)
        try:
            response = await self.client.ask(address, request, fetch_message.ShareFetchResponse)
        except BaseException as error:
            self._miss(at_stake)
            if not isinstance(error, Failed):
                raise
            self.failed(session)
            return
        finally:
            late.cancel()
            self.shares.end_fetch(at_stake)
        if response.error_code:
            self._session_refused(session, said, ErrorCode(response.error_code), asked_at)
            return
        session.epoch += 1
        for when in late_at:
            for at in at_stake:
                self.shares.no_doubt(at, when)
        self.shares.lives(session.holds.values(), asked_at)
        for topic in response.responses:
            for data in topic.partitions:
                at = (wanted[0][0], data.partition_index)
                now_term = self._term(address, at)
                self._take(session, at, data, asked_at, now_term if terms.get(at) == now_term else None)
                self._answered(session, at, said, ErrorCode(data.acknowledge_error_code), asked_at)

    def _is_late(self, partitions: Iterable[TopicPartition], late_at: list[float]) -> None:
        late_at.append(self.world.now)
        self._miss(partitions)

    def _miss(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that records may have been acquired that did not arrive."""
        self.has_missed_some = True
        for at in partitions:
            self.shares.doubt(at, self.world.now)

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
        renews = any(kind == RENEW for _, kind in said)  # then it fetches nothing
        return fetch_message.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            is_renew_ack=renews,
            max_wait_ms=0 if renews else self.chance.choice(_WAITS_MS),
            min_bytes=0 if renews else 1,
            max_bytes=0 if renews else _MAX_BYTES,
            max_records=0 if renews else self.chance.choice((1, 5, 20)),
            batch_size=self.chance.choice((1, 5, 20)),
            share_acquire_mode=self.chance.choice((0, 1)),
            topics=[fetch_message.FetchTopic(topic_id=topic_id, partitions=partitions)],
            forgotten_topics_data=[forgotten] if gone else [],
        )

    def _term(self, address: Address, at: TopicPartition) -> Term | None:
        return self.shares.term_of(address[0], at)

    def _take(
        self,
        session: Session,
        at: TopicPartition,
        data: fetch_message.PartitionData,
        asked_at: float,
        term: Term | None,
    ) -> None:
        """Take the records that were delivered from one partition."""
        if data.error_code:
            self._miss([at])
            self.client.forget(at)
        records, is_damaged = delivered_records(data)
        for acquired in data.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                record = records.get(offset)
                hold = Hold(
                    place=(at, offset),
                    count=acquired.delivery_count,
                    asked_at=asked_at,
                    received_at=self.world.now,
                    host=session.address[0],
                    term=term,
                    session=session,
                    member=self.member_id,
                    record=record or UNKNOWN,
                )
                self.shares.delivered(hold)
                session.holds[at, offset] = hold
                session.given[at, offset] = hold.record
                self.given.add((at, offset))
                if record is not None:
                    session.values[at, offset] = record.value
                    committed = self.shares.rules.is_committed
                    self.model.read(self.name, at, offset, record.value, committed=committed)
                elif not is_damaged:
                    self.world.fail(f"{self.name} was given {name_of(at, offset)} without the record")

    # -- acknowledging -----------------------------------------------------------------------------------

    async def say(self, session: Session, said: Sequence[Said], *, epoch: int | None = None) -> None:
        if not said and epoch is None:
            return
        self._speak(session, said)
        session.said = list(said)
        try:
            await self._acknowledge(session, said, session.epoch if epoch is None else epoch)
        except Failed:
            self.failed(session)
            if said and epoch is None and self.chance.random() < 0.5:
                await self._say_again(session, said)
            raise

    async def _say_again(self, session: Session, said: Sequence[Said]) -> None:
        """The answer got lost: say the same on another connection, where the session may continue."""
        self.client.reconnect(session.address)
        self._speak(session, said)
        await self._acknowledge(session, said, session.epoch)

    def _speak(self, session: Session, said: Iterable[Said]) -> None:
        """Note that from now on the broker may know what was said."""
        for each in said:
            if each.kind == RENEW:
                continue
            session.forget(each.place)
            self.shares.let_go(each.place, session)
            if each.finishes:
                self.shares.asked(each.place, each.kind, self.world.now, session.record(each.place))

    async def _acknowledge(self, session: Session, said: Sequence[Said], epoch: int) -> None:
        asked_at = self.world.now
        response = await self.ask_to_acknowledge(session, said, epoch)
        if response.error_code:
            self._session_refused(session, said, ErrorCode(response.error_code), asked_at)
            return
        session.epoch += 1
        if epoch != _FINAL_EPOCH:
            self.shares.lives(session.holds.values(), asked_at)
        for topic in response.responses:
            for data in topic.partitions:
                at = (said[0].place[0][0], data.partition_index)
                self._answered(session, at, said, ErrorCode(data.error_code), asked_at)

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
            is_renew_ack=any(kind == RENEW for _, kind in said),
            topics=[acknowledge_message.AcknowledgeTopic(topic_id=topic_id, partitions=partitions)],
        )
        return await self.client.ask(session.address, request, acknowledge_message.ShareAcknowledgeResponse)

    def _session_refused(
        self, session: Session, said: Iterable[Said], code: ErrorCode, asked_at: float
    ) -> None:
        """The whole request was refused; the next one opens a session."""
        if code not in (*SESSION_ERRORS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self.world.fail(f"{self.name} was refused by {session.address[0]}: {code.name}")
        for each in said:
            self.shares.refused(each.place, each.kind, asked_at, session.record(each.place))
        self.failed(session)

    def _answered(
        self, session: Session, at: TopicPartition, said: Iterable[Said], code: ErrorCode, asked_at: float
    ) -> None:
        """Note the answer to what was said about the records of a partition."""
        for each in said:
            if each.place[0] != at:
                continue
            if each.kind == RENEW:
                self._renewed(session, each.place, code, asked_at)
            elif each.finishes and code is ErrorCode.NONE:
                self.shares.finished(each.place, asked_at, self.world.now, session.record(each.place))
            elif code in _NOT_DONE:
                self.shares.refused(each.place, each.kind, asked_at, session.record(each.place))
        if code not in (ErrorCode.NONE, *_NOT_DONE):
            self.client.forget(at)

    def _renewed(self, session: Session, place: Place, code: ErrorCode, asked_at: float) -> None:
        hold = session.holds.get(place)
        if hold is not None and code is ErrorCode.NONE:
            hold.renewed_at = asked_at
        elif code in _NOT_DONE:
            session.forget(place)
