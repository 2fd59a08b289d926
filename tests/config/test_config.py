"""Settings: definitions that are sound, sources that override each other, errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.config import (
    BrokerConfig,
    ConfigEntry,
    GroupSettings,
    Listener,
    Source,
    TopicConfig,
    broker_config,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
    is_throttled,
    load,
    validate_broker_override,
    validate_topic_override,
)
from forebay.config.keys.broker import ALIASES, BROKER_KEYS
from forebay.config.keys.security.authorization import parse_principals
from forebay.config.keys.topic import TOPIC_KEYS
from forebay.config.sources import env_name
from forebay.config.values import LONG_MAX, ConfigType, Definition, format_value
from forebay.errors import ConfigError

TWO_WEEKS_MS = 1_209_600_000


def from_set(*overrides: str) -> BrokerConfig:
    return load(None, {}, overrides)


def from_toml(tmp_path: Path, text: str) -> BrokerConfig:
    file = tmp_path / "forebay.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, {}, ())


def described(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (entry,) = [entry for entry in entries if entry.name == name]
    return entry


# -- definitions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("definition", BROKER_KEYS.values(), ids=lambda definition: definition.name)
def test_every_default_is_itself_an_allowed_value(definition: Definition) -> None:
    text = format_value(definition.default)
    if text:
        assert definition.parse(text) == definition.default


def test_no_two_settings_share_an_environment_variable() -> None:
    names = [*BROKER_KEYS, *ALIASES]
    assert len({env_name(name) for name in names}) == len(names)


def test_topic_defaults_are_the_documented_ones() -> None:
    topic = TopicConfig.resolve(broker_config(), {})
    assert topic.retention_ms == TWO_WEEKS_MS
    assert topic.segment_ms == 604_800_000
    assert topic.max_message_bytes == 1_048_588
    assert topic.cleanup_policy == ("delete",)
    assert (topic.deletes, topic.compacted, topic.log_append_time) == (True, False, False)


@given(st.sampled_from(sorted(TOPIC_KEYS)), st.text(max_size=20))
def test_any_text_is_a_value_or_one_clear_error(name: str, text: str) -> None:
    try:
        value = validate_topic_override(name, text)
    except ConfigError as error:
        assert name in str(error)
    else:
        again = format_value(value)
        assert again is not None
        assert validate_topic_override(name, again) == value


@given(st.integers())
def test_a_number_outside_the_range_is_refused(number: int) -> None:
    low, high = BROKER_KEYS["log.segment.bytes"].bounds
    if low <= number <= high:
        assert from_set(f"log.segment.bytes={number}").get("log.segment.bytes") == number
    else:
        with pytest.raises(ConfigError, match=f"{low} to {high}"):
            from_set(f"log.segment.bytes={number}")


# -- sources ------------------------------------------------------------------------------------------


def test_the_command_line_wins_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text("num.partitions = 2\nlog.segment.bytes = 1000\nmessage.max.bytes = 2000\n")
    environ = {"FOREBAY_NUM_PARTITIONS": "3", "FOREBAY_LOG_SEGMENT_BYTES": "3000", "HOME": "/"}
    config = load(file, environ, ["num.partitions=4"])
    assert config.topics.num_partitions == 4
    assert config.get("log.segment.bytes") == 3000
    assert config.get("message.max.bytes") == 2000


@pytest.mark.parametrize(
    "text",
    [
        "log.retention.ms = 60000",
        '"log.retention.ms" = 60000',
        "[log]\nretention.ms = 60000",
        "[log.retention]\nms = 60000",
        'log.retention.ms = "60000"',
    ],
)
def test_toml_may_be_flat_quoted_or_nested(tmp_path: Path, text: str) -> None:
    assert from_toml(tmp_path, text).get("log.retention.ms") == 60_000


def test_toml_lists_and_booleans(tmp_path: Path) -> None:
    config = from_toml(
        tmp_path, 'auto.create.topics.enable = false\nlog.cleanup.policy = ["compact", "delete"]'
    )
    assert config.topics.auto_create is False
    assert TopicConfig.resolve(config, {}).cleanup_policy == ("compact", "delete")


def test_a_key_that_continues_another_can_be_quoted(tmp_path: Path) -> None:
    config = from_toml(tmp_path, '"max.connections" = 5\n"max.connections.per.ip" = 2')
    assert (config.socket.max_connections, config.socket.max_connections_per_ip) == (5, 2)
    with pytest.raises(ConfigError, match="quote both"):
        from_toml(tmp_path, "max.connections = 5\nmax.connections.per.ip = 2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("num.partitions = 1979-05-27", "write a number"),
        ("num.partitions = [1]", "write a number"),
        ("num.partitions = ", "forebay.toml"),
        ("num.partitions = 1\n[num]\n'partitions' = 2", "forebay.toml"),
        ('num.partitions = 1\n"num.partitions" = 2', "given twice"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        from_toml(tmp_path, text)


def test_an_unreadable_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "missing.toml", {}, ())
    (tmp_path / "latin.toml").write_bytes(b'broker.rack = "\xff"')
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "latin.toml", {}, ())


def test_our_own_keys_lose_the_second_prefix_in_the_environment() -> None:
    config = load(None, {"FOREBAY_FLUSH_POLICY": "interval"}, ())
    assert config.storage.flush_on_ack is False


def test_variables_that_are_not_settings_are_left_alone() -> None:
    environ = {
        "FOREBAY_BOOTSTRAP_SERVERS": "h:1",
        "FOREBAY_CACHE_DIR": "/tmp/cache",
        "FOREBAY_STATE_DIR": "/tmp/state",
        "FOREBAY_SERVICE_HOST": "10.0.0.1",
        "FOREBAY_SERVICE_PORT_KAFKA": "9092",
        "FOREBAY_PORT": "tcp://10.0.0.1:9092",
        "FOREBAY_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    assert load(None, environ, ()) == broker_config()


@pytest.mark.parametrize(
    ("environ", "overrides", "problem"),
    [
        ({}, ["log.retenton.ms=1"], "did you mean 'log.retention.ms'"),
        ({}, ["retention.ms=1"], "for all topics set log.retention.ms"),
        ({}, ["bananas=1"], "docs/configuration.md"),
        ({}, ["num.partitions"], "write key=value"),
        ({}, ["num.partitions=0"], "1 to 10000"),
        ({}, ["num.partitions=two"], "not a whole number"),
        ({}, ["num.partitions=1_0"], "not a whole number"),
        ({}, ["delete.topic.enable=yes"], "not true or false"),
        ({}, ["compression.type=zip"], "one of producer, uncompressed, gzip"),
        ({}, ["min.insync.replicas=0"], "-1 or a count"),
        ({}, ["log.cleanup.policy=keep"], "any of delete, compact"),
        ({}, ["log.dirs=a,b"], "exactly one data directory"),
        ({}, ["node.id=1", "broker.id=2"], "given twice"),
        ({"FOREBAY_NUM_PARTITION": "1"}, [], "FOREBAY_NUM_PARTITIONS"),
    ],
)
def test_errors_say_what_to_write_instead(
    environ: dict[str, str], overrides: list[str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(None, environ, overrides)


def test_an_alias_overrides_the_main_name_of_a_weaker_source(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text("node.id = 1")
    assert load(file, {}, ["broker.id=7"]).node.node_id == 7


# -- addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("PLAINTEXT://example.org:9092", "example.org", 9092),
        ("plaintext://:9092", "", 9092),
        ("[::1]:9092", "::1", 9092),
    ],
)
def test_listeners(text: str, host: str, port: int) -> None:
    listener = Listener(name="PLAINTEXT", host=host, port=port)
    allowed = "forebay.allow.insecure=true"
    assert from_set(f"listeners={text}", allowed).node.listeners.all == (listener,)
    assert from_set(f"listeners={listener}", allowed).node.listeners.all == (listener,)


@pytest.mark.parametrize(
    "text", ["", "9092", "host:", "host:x", "host:70000", "::1:9092", "a b://host:1", "a:1,b:2", "host:²"]
)
def test_what_is_no_listener(text: str) -> None:
    with pytest.raises(ConfigError, match="listeners"):
        from_set(f"listeners={text}")


@pytest.mark.parametrize("text", [":9092", "0.0.0.0:9092", "host:0", "a:1,b:2"])
def test_an_advertised_address_must_be_reachable(text: str) -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        from_set(f"advertised.listeners={text}")


# -- resolution and description -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], TWO_WEEKS_MS),
        (["log.retention.hours=1"], 3_600_000),
        (["log.retention.hours=1", "log.retention.minutes=2"], 120_000),
        (["log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"], 3),
        (["log.retention.hours=-1"], -1),
    ],
)
def test_retention_synonyms_in_order_of_precedence(overrides: list[str], expected: int) -> None:
    config = from_set(*overrides)
    assert TopicConfig.resolve(config, {}).retention_ms == expected
    assert described(describe_topic(config, {}), "retention.ms").value == str(expected)
    assert TopicConfig.resolve(config, {"retention.ms": "9"}).retention_ms == 9


@pytest.mark.parametrize(("replicas", "wanted"), [(1, 1), (2, 2), (3, 2), (5, 3)])
def test_in_sync_replicas_default_to_a_majority(replicas: int, wanted: int) -> None:
    assert TopicConfig.resolve(broker_config(), {}).insync_replicas_min(replicas) == wanted
    assert (
        TopicConfig.resolve(broker_config(), {"min.insync.replicas": "1"}).insync_replicas_min(replicas) == 1
    )


@pytest.mark.parametrize(
    ("replicas", "given", "all_of_them"),
    [(1, None, False), (2, None, True), (3, None, False), (2, "1", False), (3, "3", True), (3, "4", True)],
)
def test_a_topic_that_needs_all_replicas_is_known(
    replicas: int, given: str | None, all_of_them: bool
) -> None:
    overrides = {} if given is None else {"min.insync.replicas": given}
    assert TopicConfig.resolve(broker_config(), overrides).needs_all(replicas) == all_of_them


def test_an_inherited_majority_is_shown_as_the_number_in_force() -> None:
    name = "min.insync.replicas"
    entry = described(describe_topic(broker_config(), {}, 3), name)
    assert (entry.value, entry.source) == ("2", Source.DEFAULT_CONFIG)
    assert [(synonym.name, synonym.value) for synonym in entry.synonyms] == [(name, "-1")]
    assert described(describe_topic(broker_config(), {name: "-1"}, 3), name).value == "-1"
    assert described(describe_topic(from_set(f"{name}=1"), {}, 3), name).value == "1"


def test_a_topic_entry_names_every_place_that_sets_it() -> None:
    config = from_set("log.retention.ms=5")
    entry = next(e for e in describe_topic(config, {"retention.ms": "7"}) if e.name == "retention.ms")
    assert (entry.value, entry.source, entry.type) == ("7", Source.DYNAMIC_TOPIC_CONFIG, ConfigType.LONG)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("retention.ms", "7", Source.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "5", Source.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "336", Source.DEFAULT_CONFIG),
    ]


@pytest.mark.parametrize("name", sorted(TOPIC_KEYS))
def test_a_described_topic_value_is_the_one_in_force(name: str) -> None:
    config = from_set("log.roll.hours=2", "log.cleanup.policy=compact,delete")
    entry = next(e for e in describe_topic(config, {}) if e.name == name)
    assert entry.value is not None
    attribute = TOPIC_KEYS[name].attribute
    if attribute is None:
        assert (
            entry.documentation.startswith("Kept, but without effect") == TOPIC_KEYS[name].definition.ignored
        )
        validate_topic_override(name, entry.value)
    else:
        resolved = getattr(TopicConfig.resolve(config, {}), attribute)
        assert validate_topic_override(name, entry.value) == resolved


def test_dynamic_settings_stand_in_front_of_static_ones() -> None:
    static = from_set("message.max.bytes=1000")
    config = static.with_dynamic(own={"message.max.bytes": "3000"}, default={"message.max.bytes": "2000"})
    assert TopicConfig.resolve(config, {}).max_message_bytes == 3000
    entry = next(e for e in describe_broker(config) if e.name == "message.max.bytes")
    assert entry.read_only is False
    assert [(s.value, s.source) for s in entry.synonyms] == [
        ("3000", Source.DYNAMIC_BROKER_CONFIG),
        ("2000", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("1000", Source.STATIC_BROKER_CONFIG),
        ("1048588", Source.DEFAULT_CONFIG),
    ]
    assert config.with_dynamic(own={}, default={}) == static


def test_stored_settings_of_another_version_do_not_stop_the_broker() -> None:
    config = broker_config().with_dynamic(own={"from.the.future": "1", "node.id": "9"}, default={})
    assert config == broker_config()


def test_a_running_broker_refuses_settings_that_are_read_at_start() -> None:
    assert validate_broker_override("log.retention.ms", "5") == 5
    with pytest.raises(ConfigError, match="when the broker starts"):
        validate_broker_override("log.dirs", "/elsewhere")


def test_described_broker_settings_without_value_have_no_synonyms() -> None:
    entry = next(e for e in describe_broker(broker_config()) if e.name == "broker.rack")
    assert (entry.value, entry.source, entry.synonyms) == (None, Source.DEFAULT_CONFIG, ())


def test_a_share_is_a_number_from_0_to_1() -> None:
    config = from_set("log.cleaner.min.cleanable.ratio=0.25")
    assert TopicConfig.resolve(config, {}).min_cleanable_dirty_ratio == 0.25
    assert TopicConfig.resolve(config, {"min.cleanable.dirty.ratio": "1"}).min_cleanable_dirty_ratio == 1.0
    assert (
        next(e for e in describe_topic(config, {}) if e.name == "min.cleanable.dirty.ratio").value == "0.25"
    )
    for text, why in [("1.5", "0 to 1"), ("-0.1", "0 to 1"), ("half", "not a number"), ("nan", "finite")]:
        with pytest.raises(ConfigError, match=why):
            from_set(f"log.cleaner.min.cleanable.ratio={text}")


def test_the_rate_of_compaction_has_no_limit_by_default() -> None:
    assert broker_config().cleaner.bytes_per_second_max > 1e300
    assert from_set("log.cleaner.io.max.bytes.per.second=1E6").cleaner.bytes_per_second_max == 1e6


def test_replicas_to_throttle_are_named_in_pairs() -> None:
    name = "leader.replication.throttled.replicas"
    config = TopicConfig.resolve(broker_config({}), {name: "0:1, 12:3"})
    assert config.leader_throttled_replicas == ("0:1", "12:3")
    assert is_throttled(config.leader_throttled_replicas, 12, 3)
    assert not is_throttled(config.leader_throttled_replicas, 1, 1)
    assert config.follower_throttled_replicas == ()
    assert is_throttled((), 5, 6)
    assert is_throttled(("*",), 5, 6)
    for wrong in ("0", "a:1", "0:", "*,0:1", "0:1:2"):
        with pytest.raises(ConfigError, match="partition:broker pairs"):
            validate_topic_override(name, wrong)


def test_a_setting_of_topics_alone_is_shown_with_its_default() -> None:
    name = "follower.replication.throttled.replicas"
    (shown,) = [entry for entry in describe_topic(broker_config({}), {}) if entry.name == name]
    assert (shown.value, shown.source) == ("", Source.DEFAULT_CONFIG)
    (shown,) = [entry for entry in describe_topic(broker_config({}), {name: "*"}) if entry.name == name]
    assert (shown.value, shown.source) == ("*", Source.DYNAMIC_TOPIC_CONFIG)
    with pytest.raises(ConfigError, match=r"is a setting of topics$"):
        broker_config({name: "*"})


@pytest.mark.parametrize("name", [name for name, definition in BROKER_KEYS.items() if definition.ignored])
def test_a_setting_without_effect_says_so_and_is_shown_as_it_was_set(name: str) -> None:
    text = format_value(BROKER_KEYS[name].default) or ""
    config = broker_config().with_dynamic(own={name: text}, default={})
    entry = described(describe_broker(config), name)
    assert entry.documentation.startswith("Kept, but without effect")
    assert (entry.value, entry.source, entry.read_only) == (text, Source.DYNAMIC_BROKER_CONFIG, False)


def test_settings_of_all_brokers_are_their_own_synonyms() -> None:
    entry, unknown = describe_all_brokers({"log.segment.bytes": "6000", "from.the.future": "1"})
    assert (entry.name, entry.value) == ("log.segment.bytes", "6000")
    assert (unknown.name, unknown.value, unknown.type) == ("from.the.future", None, ConfigType.PASSWORD)
    assert "without effect" in unknown.documentation
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("log.segment.bytes", "6000", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]


IGNORED = "consumer.assignment.interval.ms"


def test_a_group_takes_the_brokers_values_until_it_has_its_own() -> None:
    config = from_set("group.consumer.session.timeout.ms=30000")
    name = "consumer.session.timeout.ms"
    entry = described(describe_group(config, {name: "20000"}), name)
    assert (entry.value, entry.source, entry.read_only) == ("20000", Source.GROUP_CONFIG, False)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        (name, "20000", Source.GROUP_CONFIG),
        (f"group.{name}", "30000", Source.STATIC_BROKER_CONFIG),
        (f"group.{name}", "45000", Source.DEFAULT_CONFIG),
    ]
    entry = described(describe_group(config, {}), name)
    assert (entry.value, entry.source) == ("30000", Source.STATIC_BROKER_CONFIG)
    ignored = described(describe_group(from_set(f"group.{IGNORED}=2000"), {}), IGNORED)
    assert (ignored.value, ignored.source) == ("2000", Source.STATIC_BROKER_CONFIG)
    assert [synonym.name for synonym in ignored.synonyms] == [f"group.{IGNORED}"] * 2
    settings = GroupSettings.resolve(config.groups, {name: "20000"})
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (20_000, 5_000)


def test_what_a_group_has_from_before_is_brought_within_the_bounds() -> None:
    config = from_set("group.consumer.max.session.timeout.ms=40000")
    stored = {"consumer.session.timeout.ms": "50000"}
    assert GroupSettings.resolve(config.groups, stored).session_timeout_ms == 40_000


def test_a_broker_knows_which_of_its_settings_have_no_effect() -> None:
    assert from_set("num.io.threads=3", "log.preallocate=true", "num.partitions=2").without_effect == [
        "log.preallocate",
        "num.io.threads",
    ]
    assert broker_config().without_effect == []


def timestamp_bounds(overrides: dict[str, str]) -> tuple[int, int]:
    topic = TopicConfig.resolve(broker_config(), overrides)
    entries = describe_topic(broker_config(), overrides)
    names = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    shown = tuple(int(described(entries, name).value or "") for name in names)
    assert shown == (topic.message_timestamp_before_max_ms, topic.message_timestamp_after_max_ms)
    return topic.message_timestamp_before_max_ms, topic.message_timestamp_after_max_ms


def test_the_old_bound_of_timestamps_stands_for_both_new_ones() -> None:
    old, after = "message.timestamp.difference.max.ms", "message.timestamp.after.max.ms"
    assert timestamp_bounds({}) == (LONG_MAX, 3_600_000)
    assert timestamp_bounds({old: "5000"}) == (5_000, 5_000)
    assert timestamp_bounds({old: "5000", after: "7"}) == (5_000, 7)
    assert timestamp_bounds({old: str(LONG_MAX)}) == (LONG_MAX, 3_600_000)  # its default says nothing
    entry = described(describe_topic(broker_config(), {old: "5000"}), after)
    assert (entry.synonyms[0].name, entry.synonyms[0].value, entry.source) == (
        old,
        "5000",
        Source.DYNAMIC_TOPIC_CONFIG,
    )


def test_levels_are_those_of_the_codec_that_batches_are_stored_under() -> None:
    levels = {"compression.gzip.level": "9", "compression.lz4.level": "17", "compression.zstd.level": "-7"}
    found = {
        codec: TopicConfig.resolve(broker_config(), {"compression.type": codec, **levels}).compression_level
        for codec in BROKER_KEYS["compression.type"].choices
    }
    assert found == {
        "producer": None,
        "uncompressed": None,
        "snappy": None,
        "gzip": 9,
        "lz4": 17,
        "zstd": -7,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("segment.jitter.ms", "-1"),
        ("remote.log.delete.on.disable", "true"),
        ("message.format.version", "new"),
        ("local.retention.ms", "-3"),
    ],
)
def test_topic_settings_keep_kafkas_bounds(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^Invalid value {value} for configuration {name}: "):
        validate_topic_override(name, value)


@pytest.mark.parametrize(
    ("text", "principals"),
    [
        (" User:admin ; User:broker;", {"User:admin", "User:broker"}),
        ("User: admin", {"User:admin"}),
        ("User :admin\n", {"User:admin"}),
        ("User:CN=ada,O=a b", {"User:CN=ada,O=a b"}),
        (r"User:CN=ada,O=us\ ; User:x", {"User:CN=ada,O=us\\ ", "User:x"}),
        ("", set()),
    ],
)
def test_super_users_have_no_white_space_around_their_names(text: str, principals: set[str]) -> None:
    assert parse_principals(text) == principals
    assert broker_config({"super.users": text}).authorization.super_users == principals


@pytest.mark.parametrize("text", ["ada", "User:", "User: ", ":ada", "User:a; :b"])
def test_what_is_no_super_user(text: str) -> None:
    with pytest.raises(ConfigError, match="is no principal"):
        broker_config({"super.users": text})
