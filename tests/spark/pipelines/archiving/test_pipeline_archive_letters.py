"""Values of an archive that do not fit their schema: a dead letter for each, once, whenever it crashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from forebay.spark.pipelines import ArchiveSettings, Brokers, DecodeSettings, PipelineError, archive
from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.layout import POSITION, require_position
from forebay.spark.pipelines.archiving.letters import Letters
from forebay.spark.pipelines.brokers import NoTopic
from forebay.spark.pipelines.lake import Lake
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding
from forebay.spark.schemas.registry import AVRO, Registry, Schema
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import forebay
from support.spark.archives import seen_in
from support.spark.schema_registry import SchemaRegistry, running_registry
from support.spark.topics import NINE_MS, Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

ORDER = Schema(
    AVRO, json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
)
WIDE = Schema(
    AVRO, json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
)
HEADERS = (("trace", b"7"),)


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


class Story:
    def __init__(self, spark: SparkSession, bootstrap: str, registry: SchemaRegistry, name: str) -> None:
        self._spark, self._bootstrap, self._registry = spark, bootstrap, registry
        self.topic, self.letters = f"al-{name}", f"al-{name}-letters"
        make(bootstrap, **{self.topic: 1, self.letters: 1})

    def value(self, schema: Schema, number: int, subject: str = "value") -> bytes:
        known = Registry(self._registry.address).register(f"{self.topic}-{subject}", schema)
        return codecs.writer(Decoding(schema=schema, schema_id=known))({"id": number})

    def send(self, *messages: Sent) -> None:
        send(self._bootstrap, self.topic, messages)

    def archive(self, folder: Path, form: str = "parquet", **changed: Any) -> dict[str, Any]:
        decode = DecodeSettings(format="confluent-avro", registry=self._registry.address)
        options = {"format": form, "decode": decode, "dead_letters": self.letters, **changed}
        brokers = Brokers(bootstrap=self._bootstrap)
        settings = ArchiveSettings(**options)
        return dict(archive(self._spark, brokers, self.topic, str(folder), settings).wait().facts)

    def keys_of_letters(self) -> list[bytes | None]:
        return [one.key for one in contents(self._bootstrap, self.letters)]


def archived(folder: Path) -> list[int]:
    lake = Lake(str(folder))
    return [offset for _, offset in seen_in(lake, archive_files(lake, require_position(lake)))]


def test_what_does_not_fit_is_archived_and_is_a_dead_letter(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path
) -> None:
    story = Story(spark, broker.bootstrap, registry, "kinds")
    good = story.value(ORDER, 1)
    too_large = story.value(WIDE, 2**40, "elsewhere")
    story.send(Sent(good, b"a"), Sent(b"no avro", b"b", headers=HEADERS), Sent(too_large, b"c"))
    assert story.archive(tmp_path)["dead letters"] == 2
    story.send(Sent(None, b"d"), Sent(good, b"e"))
    assert story.archive(tmp_path)["dead letters"] == 0
    story.send(Sent(b"", b"f"))
    assert story.archive(tmp_path)["dead letters"] == 1

    letters = contents(broker.bootstrap, story.letters)
    assert [(one.key, one.value, one.timestamp_ms) for one in letters] == [
        (b"b", b"no avro", NINE_MS),
        (b"c", too_large, NINE_MS),
        (b"f", b"", NINE_MS),
    ]
    about = [dict(one.headers) for one in letters]
    assert about[0]["trace"] == b"7"
    assert [one["__dlq.errors.offset"] for one in about] == [b"1", b"2", b"5"]
    reasons = [one["__dlq.errors.message"] or b"" for one in about]
    assert all(reason.startswith(b"the value does not fit its schema: ") for reason in reasons)
    assert b"long is not int" in reasons[1]
    assert archived(tmp_path) == list(range(6))
    listed = forebay("dead-letter", "list", story.letters, "--json", bootstrap=broker.bootstrap)
    assert listed.code == 0, listed.err


def crash_once(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """As if the driver were killed before or after its letters, or before the batch counts."""
    write, move = Letters.write, Lake.move
    left = [True]

    def writing(self: Letters, *arguments: Any) -> None:
        if where == "before letters" and left.pop():
            raise PipelineError(where)
        write(self, *arguments)
        if where == "after letters" and left.pop():
            raise PipelineError(where)

    def moving(self: Lake, source: str, target: str) -> None:
        if where == "before it counts" and target == POSITION and left.pop():
            raise PipelineError(where)
        move(self, source, target)

    monkeypatch.setattr(Letters, "write", writing)
    monkeypatch.setattr(Lake, "move", moving)


# Each step, each form and each checkpoint in make test; chaos has the others together.
MORE = pytest.mark.chaos


@pytest.mark.parametrize(
    ("where", "form", "checkpoint"),
    [
        pytest.param("before letters", "parquet", "kept", marks=MORE),
        ("before letters", "parquet", "lost"),
        ("after letters", "parquet", "kept"),
        pytest.param("after letters", "parquet", "lost", marks=MORE),
        pytest.param("after letters", "delta", "kept", marks=MORE),
        ("after letters", "delta", "lost"),
        ("after letters", "iceberg", "kept"),
        pytest.param("after letters", "iceberg", "lost", marks=MORE),
        ("before it counts", "delta", "kept"),
        pytest.param("before it counts", "delta", "lost", marks=MORE),
    ],
)
def test_a_crash_at_any_step_leaves_each_letter_once(
    spark: SparkSession,
    broker: BrokerProcess,
    registry: SchemaRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    form: str,
    checkpoint: str,
) -> None:
    """Without its checkpoint Spark cuts other batches, and repeats none."""
    story = Story(spark, broker.bootstrap, registry, f"{where.replace(' ', '-')}-{form}-{checkpoint}")
    good = story.value(ORDER, 1)
    story.send(Sent(good, b"a"), Sent(b"bad", b"b"))
    story.archive(tmp_path, form)
    story.send(Sent(b"bad", b"c"), Sent(good, b"d"))
    with monkeypatch.context() as armed:
        crash_once(armed, where)
        with pytest.raises(PipelineError, match=where):
            story.archive(tmp_path, form)
    story.send(Sent(good, b"e"), Sent(b"bad", b"f"))
    if checkpoint == "lost":
        shutil.rmtree(tmp_path / "_forebay" / "checkpoint")
    story.archive(tmp_path, form)
    assert story.keys_of_letters() == [b"b", b"c", b"f"]
    assert archived(tmp_path) == list(range(6))


def test_where_dead_letters_of_an_archive_cannot_go(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path
) -> None:
    story = Story(spark, broker.bootstrap, registry, "refused")
    story.value(ORDER, 1)
    with pytest.raises(PipelineError, match="a topic other than the one that is archived"):
        story.archive(tmp_path / "a", dead_letters=story.topic)
    with pytest.raises(NoTopic, match="there is no topic al-nowhere"):
        story.archive(tmp_path / "b", dead_letters="al-nowhere")
    with pytest.raises(PipelineError, match="add --decode and --registry, or leave out --dead-letters"):
        story.archive(tmp_path / "c", decode=None)
