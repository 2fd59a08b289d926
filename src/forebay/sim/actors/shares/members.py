"""Members of a share group: they fetch records, process them or pretend to, and report the outcome.

They have every bad habit that a client can have. They are slow, forget what they hold, say the same twice,
speak of records that they never had or in sessions that are over, ask previous leaders, continue after they
have left the group, fall silent for longer than their locks or their membership last and continue as if
nothing had happened, and die while they hold records. The model is told which of these actions must have no
effect.
"""

from __future__ import annotations

import asyncio
from zlib import crc32

from forebay.errors import ErrorCode
from forebay.sim.actors.client import GROUP, Failed, Refused
from forebay.sim.actors.shares.consumer import SESSION_ERRORS, ShareConsumer
from forebay.sim.actors.shares.sessions import Said, Session
from forebay.sim.models.share_records import ACCEPT, REJECT, RELEASE, RENEW

_PAUSE_S = 0.25
_AWAY_S = 2.0
_SILENT_S = 4.0
"""How long a stopped process pauses; its connections stay open."""
_LATE_S_MAX = 10.0
"""The latest time at which the members of a group that begins at the end start: mostly among the faults."""
_END_CHANCE = 0.05
_SILENCE_CHANCE = 0.03
_MISCHIEF_CHANCE = 0.12
_GHOST_CHANCE = 0.5
_POISON = 9
"""One in this many values cannot be processed: its member releases it."""
_HARD = 4
"""One in this many takes long, and its lock is renewed."""


class ShareMember(ShareConsumer):
    look_around_chance = 0.1
    """The chance of asking who leads, as clients do when their metadata is old."""

    # -- life --------------------------------------------------------------------------------------------

    async def act(self) -> None:
        if self.shares.rules.begins_at_end:
            await asyncio.sleep(self.chance.uniform(0.0, _LATE_S_MAX))
        while not self.stopping:
            if self.shares.is_vacated:
                await self._stay_away()
            try:
                await self.stay()
                await self._fetch_and_work()
                if not self.calm and self.chance.random() < _MISCHIEF_CHANCE:
                    await self._make_mischief()
            except (Failed, Refused):
                self.client.forget_coordinator(GROUP, self.group)
            await self.rest(_PAUSE_S)
            if not self.calm and self.chance.random() < _END_CHANCE:
                await self._die()
            elif not self.calm and self.chance.random() < _SILENCE_CHANCE:
                await self.rest(_SILENT_S)
        await self.end_sessions()
        await self.leave()

    async def _fetch_and_work(self) -> None:
        if self.chance.random() < self.look_around_chance:
            await self.client.metadata([self.partitions[0][0]])
        await self.fetch_all(self.assigned)
        for session in list(self.sessions.values()):
            if session.epoch and session.holds and self.chance.random() < 0.7:
                await self.say(session, self.decide(session))

    async def _stay_away(self) -> None:
        """Leave the group for as long as its administrator wants; some go on fetching all the same."""
        await self.leave()
        is_ghost = not self.calm and self.chance.random() < _GHOST_CHANCE
        if not is_ghost:
            await self.end_sessions()
        while self.shares.is_vacated and not self.stopping:
            await self.rest(_PAUSE_S)
            if is_ghost:
                try:
                    await self._fetch_and_work()
                except (Failed, Refused):
                    continue

    async def _die(self) -> None:
        """Die: a process that ends closes its connections, a machine without power closes nothing."""
        is_seen = self.chance.random() < 0.5 or not self.shares.rules.locks_run_out
        self.part(is_seen=is_seen)
        self.given.clear()
        self.has_missed_some = False
        self.lives += 1
        self.epoch = 0
        self.heartbeat_due_at = 0.0
        self.assigned = []
        await self.rest(_AWAY_S)

    # -- what becomes of records -------------------------------------------------------------------------

    def decide(self, session: Session) -> list[Said]:
        """Decide what to say about some of its records; it works on the rest, or forgets them."""
        said: list[Said] = []
        for place in list(session.holds):
            value = session.values.get(place, b"")
            luck = self.chance.random()
            if luck < 0.15:
                continue  # it takes its time
            if luck < 0.22:
                session.forget(place)
            elif luck < 0.75 and self.is_hard(value):
                said.append(Said(place, RENEW))
            elif luck < 0.4 or crc32(value) % _POISON == 0 or not value:
                said.append(Said(place, RELEASE))
            else:
                said.append(Said(place, REJECT if luck < 0.45 else ACCEPT))
        return said

    def is_hard(self, value: bytes) -> bool:
        """True if it works on the record for long, and renews the lock meanwhile."""
        return crc32(value) % _HARD == 1

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
        """Repeat what was said already, perhaps with another outcome."""
        said = [Said(place, self.chance.choice((ACCEPT, REJECT, RELEASE))) for place, _ in session.said]
        if not any(place in session.holds for place, _ in said):
            await self.say(session, said)

    async def _speak_of_others(self, session: Session) -> None:
        """Accept a record that it never had."""
        at = self.chance.choice(sorted(session.partitions) or self.partitions)
        never_had = [offset for offset in self.model.offsets(at) if (at, offset) not in self.given]
        if self.has_missed_some or not never_had:
            return
        place = (at, self.chance.choice(never_had))
        asked_at = self.world.now
        try:
            response = await self.ask_to_acknowledge(session, [Said(place, ACCEPT)], session.epoch)
        except Failed:
            self.failed(session)
            raise
        if response.error_code:
            self.failed(session)
            return
        session.epoch += 1
        if not response.responses[0].partitions[0].error_code:
            self.shares.taken_from_a_stranger(self.name, place, asked_at, self.world.now)

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
        """Fetch from a broker that may be a previous leader."""
        await self.fetch(self.chance.choice(self.client.brokers), self.partitions)


class PatientMember(ShareMember):
    """Works on everything for long, often longer than a lock lasts, and looks for new leaders meanwhile."""

    look_around_chance = 0.3

    def is_hard(self, value: bytes) -> bool:
        return bool(value)
