"""Members of a share group: they fetch records, work on them or pretend to, and say what became of them.

They have every bad habit that a client can have. They are slow, forget what they hold, say the same twice,
speak of records that they never had or in sessions that are over, ask brokers that led before, and die with
records in their hands. What of that must have no effect is told to the model as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.client import GROUP, Client, Failed, Refused, check
from forebay.sim.actors.shares.consumer import FINAL_EPOCH, SESSION_ERRORS, ShareConsumer
from forebay.sim.actors.shares.sessions import (
    ACCEPT,
    REJECT,
    RELEASE,
    Said,
    Session,
)
from forebay.sim.models.messages import Model
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
_LEAVE_EPOCH = -1


class ShareMember(ShareConsumer):
    def __init__(
        self, client: Client, model: Model, group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model, group, partitions)
        self._assigned: list[TopicPartition] = []
        self._epoch = 0
        self._heartbeat_due_at = 0.0

    # -- life -----------------------------------------------------------------------------------------

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

    async def _die(self) -> None:
        """A process that ends closes its connections; a machine that does closes nothing."""
        is_seen = self.chance.random() < 0.5 or not self.model.shares.rules.locks_run_out
        self.end_sessions(is_seen=is_seen)
        self.given.clear()
        self.has_missed_some = False
        self.lives += 1
        self._epoch = 0
        self._heartbeat_due_at = 0.0
        self._assigned = []
        await self.rest(_AWAY_S)

    async def say_goodbye(self) -> None:
        for session in list(self.sessions.values()):
            if session.epoch:
                try:
                    await self.say(session, self.decide(session), epoch=FINAL_EPOCH)
                except Failed:
                    continue
        self.end_sessions(is_seen=True)
        try:
            await self._heartbeat(_LEAVE_EPOCH)
        except (Failed, Refused):
            return

    # -- what becomes of records ----------------------------------------------------------------------

    async def _work(self) -> None:
        for session in list(self.sessions.values()):
            if session.epoch and session.holds and self.chance.random() < 0.7:
                await self.say(session, self.decide(session))

    def decide(self, session: Session) -> list[Said]:
        """What to say about some of what it holds; the rest it works on, or forgets."""
        said: list[Said] = []
        for place in list(session.holds):
            value = session.values.get(place, b"")
            luck = self.chance.random()
            if luck < 0.15:
                continue  # it takes its time
            if luck < 0.22:
                self.forget_record(session, place)
            elif luck < 0.4 or crc32(value) % _POISON == 0 or not value:
                said.append(Said(place, RELEASE))
            else:
                said.append(Said(place, REJECT if luck < 0.45 else ACCEPT))
        return said

    # -- mischief -------------------------------------------------------------------------------------

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
            await self.say(session, said)

    async def _speak_of_others(self, session: Session) -> None:
        """Accept a record that it never had."""
        at = self.chance.choice(sorted(session.partitions) or self.partitions)
        never_had = [offset for offset in self.model.offsets(at) if (at, offset) not in self.given]
        if self.has_missed_some or not never_had:
            return
        offset = self.chance.choice(never_had)
        try:
            response = await self.ask_to_acknowledge(session, [Said((at, offset), ACCEPT)], session.epoch)
        except Failed:
            self.session_failed(session)
            raise
        if response.error_code:
            self.session_failed(session)
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
        response = await self.ask_to_acknowledge(session, said, epoch)
        if response.error_code not in (*SESSION_ERRORS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self.world.fail(f"{session.address[0]} took epoch {epoch} where {session.epoch} was due")

    async def _ask_a_stranger(self, _session: Session) -> None:
        """Fetch from a broker that may have led before."""
        await self.fetch(self.chance.choice(self.client.brokers), self.partitions)
