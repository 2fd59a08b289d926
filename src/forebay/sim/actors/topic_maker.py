"""The topics of a story, and their settings."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client, check
from forebay.sim.actors.shares.settings import set_up_shares
from forebay.sim.models.messages import Model
from forebay.sim.world.places import (
    ALARMS,
    FOLDED_KEYS,
    JOBS,
    LATER,
    LATER_DELAY_MS,
    TOPICS,
)
from forebay.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_CLEAN_SOON = {"min.cleanable.dirty.ratio": "0.01"}
_SETTINGS: dict[str, dict[str, str]] = {
    "brief": {"segment.bytes": "1024", "retention.bytes": "2048"},
    "keyed": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "500"},
    FOLDED_KEYS[0][0]: {"cleanup.policy": "compact", "delete.retention.ms": "20000", **_CLEAN_SOON},
    LATER[0]: {"forebay.delay.ms": str(LATER_DELAY_MS)},
    ALARMS[0]: {"forebay.delay.enable": "true", "forebay.delay.max.ms": str(2**63 - 1)},
}
_TIERED = ("exact", "plain", "loose", "source", "target", "brief", "jobs")
_ALARM_SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"segment.bytes": "1000", "cleanup.policy": "compact", "delete.retention.ms": "0", **_CLEAN_SOON},
    {"segment.bytes": "4000", "cleanup.policy": "compact", "delete.retention.ms": "500", **_CLEAN_SOON},
)
"""Each message has its own key, so compaction removes only delay notes."""
_SHORT_ALARM_SETTINGS: tuple[dict[str, str], ...] = (
    {"segment.bytes": "1000", "retention.ms": "4000"},
    {"cleanup.policy": "compact,delete", "delete.retention.ms": "0", **_CLEAN_SOON}
    | {"segment.bytes": "1000", "retention.ms": "6000"},
)


class TopicMaker(Actor):
    """Makes the topics that the others use."""

    def __init__(
        self,
        client: Client,
        model: Model,
        replication_factor: int,
        topics: Mapping[str, int] = TOPICS,
        *,
        tiered: bool = False,
    ) -> None:
        super().__init__(client, model)
        self._replication_factor = replication_factor
        self._topics = topics
        self._settings = {
            "keyed": {"segment.bytes": self.chance.choice(("130", "400", "1000"))},
            FOLDED_KEYS[0][0]: {
                "segment.bytes": self.world.chance("folded keys").choice(("400", "2000", "1048576"))
            },
            ALARMS[0]: self.world.chance("alarm settings").choice(
                _SHORT_ALARM_SETTINGS if model.alarms.are_deleted else _ALARM_SETTINGS
            ),
        }
        if tiered:
            self._settings |= {name: {"remote.storage.enable": "true"} for name in _TIERED}
            self._settings["brief"] = {"remote.storage.enable": "true", "local.retention.bytes": "1024"}
        if model.shares.rules.loses_records:
            jobs = JOBS[0][0]
            unclean = {"unclean.leader.election.enable": "true"}
            self._settings[jobs] = self._settings.get(jobs, {}) | unclean

    async def act(self) -> None:
        await self.retry(self._make)
        await self.retry(lambda: set_up_shares(self))
        for name, count in self._topics.items():
            self.model.topics.made(name, count)

    async def _make(self) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=self._replication_factor,
                configs=_configs(_SETTINGS.get(name, {}) | self._settings.get(name, {})),
            )
            for name, count in self._topics.items()
        ]
        response = await self.client.ask_any(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        for result in response.topics:
            if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt was not answered
                check(result.error_code)


def _configs(settings: Mapping[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
