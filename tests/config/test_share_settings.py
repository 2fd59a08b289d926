"""The settings of share groups: what each accepts, what stands behind it, and stored values refused now."""

from __future__ import annotations

import pytest

from forebay.config import GroupsConfig, GroupSettings, OffsetReset, broker_config, check_group_overrides
from forebay.config.group_settings import GROUP_RESOURCE_KEYS, bound_names
from forebay.config.keys.broker import BROKER_KEYS
from forebay.config.offset_reset import parse_duration_ms
from forebay.errors import ConfigError

CONFIG = GroupsConfig()


def test_defaults_are_those_of_the_broker() -> None:
    config = broker_config(
        {"group.share.record.lock.duration.ms": "2000", "group.share.max.size": "7"}
    ).groups
    assert (config.share.record_lock_duration_ms, config.share.max_size) == (2_000, 7)
    settings = GroupSettings.resolve(config, {}).share
    assert settings.record_lock_duration_ms == 2_000
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (45_000, 5_000)
    assert (settings.delivery_count_limit, settings.partition_max_record_locks) == (5, 2_000)
    assert settings.offset_reset == OffsetReset("latest")
    assert (settings.is_read_committed, settings.renew_enabled) == (False, True)
    assert (settings.retry_backoff_ms, settings.retry_backoff_ms_max) == (0, 60_000)
    assert (settings.dead_letter_topic, settings.dead_letter_copies_record) == ("", False)


def test_the_defaults_in_code_are_those_of_the_definitions() -> None:
    assert broker_config().groups == CONFIG


def test_a_group_has_values_of_its_own() -> None:
    settings = GroupSettings.resolve(
        CONFIG,
        {
            "share.record.lock.duration.ms": "1000",
            "share.auto.offset.reset": "by_duration:PT1H",
            "share.isolation.level": "read_committed",
            "share.renew.acknowledge.enable": "false",
            "forebay.share.retry.backoff.ms": "100",
            "forebay.share.retry.backoff.max.ms": "900",
            "errors.deadletterqueue.topic.name": "dead",
            "errors.deadletterqueue.copy.record.enable": "true",
        },
    ).share
    assert settings.record_lock_duration_ms == 1_000
    assert settings.offset_reset == OffsetReset("by_duration", 3_600_000)
    assert (settings.is_read_committed, settings.renew_enabled) == (True, False)
    assert (settings.retry_backoff_ms, settings.retry_backoff_ms_max) == (100, 900)
    assert (settings.dead_letter_topic, settings.dead_letter_copies_record) == ("dead", True)


def test_every_bound_is_a_setting_of_the_broker() -> None:
    bounds = [bound_names(name) for name in GROUP_RESOURCE_KEYS]
    assert {name for pair in bounds if pair for name in pair} <= set(BROKER_KEYS)
    assert sum(pair is not None for pair in bounds) == 9


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"share.record.lock.duration.ms": "60001"},
            r"group\.share\.max\.record\.lock\.duration\.ms \(60000\)",
        ),
        ({"share.delivery.count.limit": "11"}, r"group\.share\.max\.delivery\.count\.limit \(10\)"),
        ({"share.partition.max.record.locks": "4001"}, r"max\.partition\.max\.record\.locks \(4000\)"),
        ({"share.session.timeout.ms": "999"}, r"group\.share\.min\.session\.timeout\.ms \(1000\)"),
        ({"share.session.timeout.ms": "5000"}, "must be greater than share.heartbeat.interval.ms"),
        (
            {"forebay.share.retry.backoff.ms": "60001"},
            "must not be greater than forebay.share.retry.backoff.max",
        ),
    ],
)
def test_values_that_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_group_overrides(CONFIG, overrides)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("share.auto.offset.reset", "sometimes"),
        ("share.auto.offset.reset", "by_duration:-PT1S"),
        ("share.auto.offset.reset", "by_duration"),
        ("share.isolation.level", "serializable"),
        ("errors.deadletterqueue.topic.name", "__dead"),
        ("share.record.lock.duration.ms", "999"),
    ],
)
def test_texts_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value {text} for configuration {name}"):
        GROUP_RESOURCE_KEYS[name].definition.parse(text)


def test_a_stored_value_that_is_refused_now_counts_as_none() -> None:
    """Earlier versions kept these settings without a look at what they say."""
    stored = {"share.auto.offset.reset": "sometimes", "share.delivery.count.limit": "500"}
    settings = GroupSettings.resolve(CONFIG, stored).share
    assert (settings.offset_reset, settings.delivery_count_limit) == (OffsetReset("latest"), 5)


def test_a_stored_value_is_brought_within_bounds_that_were_narrowed() -> None:
    stored = {"share.delivery.count.limit": "25"}
    assert GroupSettings.resolve(CONFIG, stored).share.delivery_count_limit == 10


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P2DT3H4M5.25S", 183_845_250),
        ("pt0.001s", 1),
        ("PT0.0009S", 0),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "PT1.S", "PT-1S", "P1Y", "PT1S ", "P99999999D"]
)
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|hundred years"):
        parse_duration_ms(text)


def test_what_to_look_the_first_offset_up_by() -> None:
    assert OffsetReset("latest").timestamp(5_000) == -1
    assert OffsetReset("earliest").timestamp(5_000) == -2
    assert OffsetReset("by_duration", 1_500).timestamp(5_000) == 3_500
    assert OffsetReset("by_duration", 9_000).timestamp(5_000) == 0
