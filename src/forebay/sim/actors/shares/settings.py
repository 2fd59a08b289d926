"""The settings of the share group: chosen by chance, and given to the cluster."""

from __future__ import annotations

from random import Random

from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import check
from forebay.sim.models.share_records import ShareRules
from forebay.sim.world.places import DEAD_LETTER_TOPIC, SHARE_GROUP_NAME
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET = 0
_GROUP_RESOURCE = 32


async def set_up_shares(actor: Actor) -> None:
    settings = _settings(actor.model.shares.rules)
    configs = [
        AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in settings.items()
    ]
    resource = AlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=SHARE_GROUP_NAME, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await actor.client.ask_any(request, IncrementalAlterConfigsResponse)
    check(response.responses[0].error_code)


def chosen_rules(chance: Random) -> ShareRules:
    return ShareRules(
        lock_ms=chance.choice((1_000, 2_000, 60_000)),
        delivery_limit=chance.choice((2, 3, 5)),
        backoff_ms=chance.choice((0, 200)),
        begins_at_end=chance.random() < 0.3,
        is_committed=chance.random() < 0.4,
        has_dead_letters=chance.random() < 0.5,
        copies_records=chance.random() < 0.5,
        has_resets=chance.random() < 0.3,
    )


def _settings(rules: ShareRules) -> dict[str, str]:
    settings = {
        "share.auto.offset.reset": "latest" if rules.begins_at_end else "earliest",
        "share.isolation.level": "read_committed" if rules.is_committed else "read_uncommitted",
        "share.session.timeout.ms": "2000",
        "share.heartbeat.interval.ms": "700",
        "share.record.lock.duration.ms": str(rules.lock_ms),
        "share.delivery.count.limit": str(rules.delivery_limit),
        "forebay.share.retry.backoff.ms": str(rules.backoff_ms),
        "forebay.share.retry.backoff.max.ms": str(4 * rules.backoff_ms),
    }
    if rules.has_dead_letters:
        settings["errors.deadletterqueue.topic.name"] = DEAD_LETTER_TOPIC
        settings["errors.deadletterqueue.copy.record.enable"] = str(rules.copies_records).lower()
    return settings
