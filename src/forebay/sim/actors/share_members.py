"""Members of a share group: they fetch records, work on them or pretend to, and say what became of them.

They have every bad habit that a client can have. They are slow, forget what they hold, say the same twice,
speak of records that they never had or in sessions that are over, ask brokers that led before, and die with
records in their hands. What of that must have no effect is told to the model as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import GROUP, Client, Failed, Refused, check
from forebay.sim.actors.share_sessions import (
    ACCEPT,
    REJECT,
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
from forebay.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_PAUSE_S = 0.25
_AWAY_S = 2.0
_HEARTBEAT_S = 0.7
_END_CHANCE = 0.05
_MISCHIEF_CHANCE = 0.12
_POISON = 9
"""One of so many values cannot be worked on: whoever gets it gives it back."""
_WAITS_MS = (0, 100, 300)
_DELIVERY_S_MAX = 0.9
"""A lock lasts longer. So an answer that came sooner, without an error, has all that was acquired."""
_MAX_BYTES = 16 * 1024
_FINAL_EPOCH = -1
_LEAVE_EPOCH = -1

_SESSION_ERRORS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_NOT_DONE = _SESSION_ERRORS | {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
"""Errors that say that an acknowledgement was not carried out."""


class ShareMember(Actor):
    def __init__(
        self, client: Client, model: Model, group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model)
        self.group = group
        self.sessions: dict[Address, Session] = {}
        self._partitions = list(partitions)
        self._assigned: list[TopicPartition] = []
        self._lives = 0
        self._epoch = 0
        self._heartbeat_due_at = 0.0
        self._given: set[Place] = set()
        """What it was given in this life."""
        self._has_missed_some = False
        """Whether it may have been given more."""

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self._lives}"

    # -- life --------------------------------------------------------------------------------------------

    async def act(self) -> None:
        while not self.stopping:
            try:
                await self._stay()
                await self.fetch_all(self._assigned)
                await self._work()
                if not self.calm and self.chance.random() < _MISCHIEF_CHANCE:
                    await self._make_mischief()
            except (Failed, Refused):
                self.client.forget_coordinator(GROUP, self.group)
            await self.rest(_PAUSE_S)
            if not self.calm and self.chance.random() < _END_CHANCE:
                await self._die()
        await self.say_goodbye()

    async def _stay(self) -> None:
        if self.world.now < self._heartbeat_due_at:
            return
        try:
            response = await self._heartbeat(self._epoch)
        except Refused as refusal:
            if refusal.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self.world.fail(f"{self.name} is no member: {refusal}")
            self._epoch = 0
            raise
        self._epoch = response.member_epoch
        self._heartbeat_due_at = self.world.now + _HEARTBEAT_S
        if response.assignment is not None:
            self._assigned = [
                at
                for at in self._partitions
                for topic in response.assignment.topic_partitions
                if topic.topic_id == await self.client.topic_id(at[0]) and at[1] in topic.partitions
            ]

    async def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        topics = sorted({topic for topic, _ in self._partitions})
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics if epoch == 0 else None,
        )
        response = await self.client.ask_coordinator(GROUP, self.group, request, ShareGroupHeartbeatResponse)
        check(response.error_code)
        return response

    async def _die(self) -> None:
        """A process that ends closes its connections; a machine that does closes nothing."""
        is_seen = self.chance.random() < 0.5 or not self.model.shares.rules.locks_run_out
        self._part(is_seen=is_seen)
        self._given.clear()
        self._has_missed_some = False
        self._lives += 1
        self._epoch = 0
        self._heartbeat_due_at = 0.0
        self._assigned = []
        await self.rest(_AWAY_S)

    async def say_goodbye(self) -> None:
        for session in list(self.sessions.values()):
            if session.epoch:
                try:
                    await self._say(session, self._decide(session), epoch=_FINAL_EPOCH)
                except Failed:
                    continue
        self._part(is_seen=True)
        try:
            await self._heartbeat(_LEAVE_EPOCH)
        except (Failed, Refused):
            return

    def _part(self, *, is_seen: bool) -> None:
        """Go on without any session; whether the brokers learn of it."""
        self.sessions.clear()
        for address in self.client.brokers:
            self._leave(address, is_seen=is_seen)

    def _leave(self, address: Address, *, is_seen: bool) -> None:
        if is_seen:
            self.client.hang_up(address)
        else:
            self.client.reconnect(address)

    def _failed(self, session: Session) -> None:
        """Go on without a session. Where locks last, its broker must learn of it."""
        if self.sessions.get(session.address) is session:
            del self.sessions[session.address]
        is_seen = not self.model.shares.rules.locks_run_out or self.chance.random() < 0.5
        self._leave(session.address, is_seen=is_seen)
        for at in sorted(session.partitions):
            self.client.forget(at)

    # -- fetching ----------------------------------------------------------------------------------------

    async def fetch_all(self, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[Address, list[TopicPartition]] = {}
        for at in partitions:
            address, _ = await self.client.leader(at)
            by_leader.setdefault(address, []).append(at)
        for address, wanted in by_leader.items():
            await self._fetch(address, wanted)

    async def _fetch(self, address: Address, wanted: Sequence[TopicPartition]) -> None:
        session = self.sessions.setdefault(address, Session(address))
        said = self._decide(session) if session.epoch and self.chance.random() < 0.5 else []
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
            self._failed(session)
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
        self._has_missed_some = True
        for at in partitions:
            self.model.shares.doubt(at, self.world.now)

    async def _fetch_request(
        self,
        session: Session,
        wanted: Sequence[TopicPartition],
        said: Sequence[Said],
        gone: Sequence[TopicPartition],
    ) -> fetch_message.ShareFetchRequest:
        topic_id = await self.client.topic_id(self._partitions[0][0])
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
                self._given.add((at, offset))
                value = values.get(offset)
                if value is not None:
                    session.values[at, offset] = value
                    self.model.read(self.name, at, offset, value, committed=False)
                elif not is_damaged:
                    self.world.fail(f"{self.name} was given {name_of(at, offset)} without the record")

    # -- what becomes of records -------------------------------------------------------------------------

    async def _work(self) -> None:
        for session in list(self.sessions.values()):
            if session.epoch and session.holds and self.chance.random() < 0.7:
                await self._say(session, self._decide(session))

    def _decide(self, session: Session) -> list[Said]:
        """What to say about some of what it holds; the rest it works on, or forgets."""
        said: list[Said] = []
        for place in list(session.holds):
            value = session.values.get(place, b"")
            luck = self.chance.random()
            if luck < 0.15:
                continue  # it takes its time
            if luck < 0.22:
                self._forget(session, place)
            elif luck < 0.4 or crc32(value) % _POISON == 0 or not value:
                said.append(Said(place, RELEASE))
            else:
                said.append(Said(place, REJECT if luck < 0.45 else ACCEPT))
        return said

    def _forget(self, session: Session, place: Place) -> None:
        session.holds.pop(place, None)
        session.values.pop(place, None)

    async def _say(self, session: Session, said: Sequence[Said], *, epoch: int | None = None) -> None:
        if not said and epoch is None:
            return
        self._speak(session, said)
        session.said = list(said)
        try:
            await self._acknowledge(session, said, session.epoch if epoch is None else epoch)
        except Failed:
            self._failed(session)
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
            self._forget(session, each.place)
            self.model.shares.let_go(each.place, session)
            if each.finishes:
                self.model.shares.asked(each.place)

    async def _acknowledge(self, session: Session, said: Sequence[Said], epoch: int) -> None:
        asked_at = self.world.now
        response = await self._ask_to_acknowledge(session, said, epoch)
        if response.error_code:
            self._session_refused(session, said, ErrorCode(response.error_code))
            return
        session.epoch += 1
        if epoch != _FINAL_EPOCH:
            self.model.shares.lives(session.holds.values(), asked_at)
        for topic in response.responses:
            for data in topic.partitions:
                self._answered((said[0].place[0][0], data.partition_index), said, ErrorCode(data.error_code))

    async def _ask_to_acknowledge(
        self, session: Session, said: Sequence[Said], epoch: int
    ) -> acknowledge_message.ShareAcknowledgeResponse:
        topic_id = await self.client.topic_id(self._partitions[0][0])
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
        if code not in (*_SESSION_ERRORS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self.world.fail(f"{self.name} was refused by {session.address[0]}: {code.name}")
        for each in said:
            if each.finishes:
                self.model.shares.refused(each.place)
        self._failed(session)

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

    # -- mischief ----------------------------------------------------------------------------------------

    async def _make_mischief(self) -> None:
        sessions = [session for session in self.sessions.values() if session.epoch]
        if not sessions:
            return
        session = self.chance.choice(sessions)
        await self.chance.choice(
            (self._speak_twice, self._speak_of_others, self._speak_in_another_time, self._ask_a_stranger)
        )(session)

    async def _speak_twice(self, session: Session) -> None:
        """Say again what is said already, perhaps with another outcome."""
        said = [Said(place, self.chance.choice((ACCEPT, REJECT, RELEASE))) for place, _ in session.said]
        if not any(place in session.holds for place, _ in said):
            await self._say(session, said)

    async def _speak_of_others(self, session: Session) -> None:
        """Accept a record that it never had."""
        at = self.chance.choice(sorted(session.partitions) or self._partitions)
        never_had = [offset for offset in self.model.offsets(at) if (at, offset) not in self._given]
        if self._has_missed_some or not never_had:
            return
        offset = self.chance.choice(never_had)
        try:
            response = await self._ask_to_acknowledge(session, [Said((at, offset), ACCEPT)], session.epoch)
        except Failed:
            self._failed(session)
            raise
        if response.error_code:
            self._failed(session)
            return
        session.epoch += 1
        if not response.responses[0].partitions[0].error_code:
            self.model.shares.taken_from_a_stranger(self.name, (at, offset), self.world.now)

    async def _speak_in_another_time(self, session: Session) -> None:
        """Use an epoch that the session had before, or does not have yet."""
        epoch = session.epoch + self.chance.choice((-1, 5))
        said = [Said(place, ACCEPT) for place in session.holds]
        if epoch < 1 or not said:
            return
        response = await self._ask_to_acknowledge(session, said, epoch)
        if response.error_code not in (*_SESSION_ERRORS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self.world.fail(f"{session.address[0]} took epoch {epoch} where {session.epoch} was due")

    async def _ask_a_stranger(self, _session: Session) -> None:
        """Fetch from a broker that may have led before."""
        await self._fetch(self.chance.choice(self.client.brokers), self._partitions)
