"""Tables in object stores, and Iceberg tables in catalogs that others share: REST, Glue and SQL.

The store, and Glue, are moto's server; the REST catalog speaks the protocol over pyiceberg's own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from forebay.spark.pipelines import CatalogSettings, PipelineError
from forebay.spark.pipelines.archiving import hour_files
from forebay.spark.pipelines.archiving.batches import BatchWriter
from forebay.spark.pipelines.archiving.beginning import begin
from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.hour_files import Written, publish, write_hours
from forebay.spark.pipelines.archiving.layout import POSITION, batch_file, require_position
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.archiving.tables.table import open_iceberg, open_table
from forebay.spark.pipelines.lake import Lake
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import command, environment
from support.spark.archives import MINUTE_US, QUERY, SIX_US, Message, record_batch, seen_in
from support.spark.object_store import ObjectStore, running_object_store
from support.spark.pipeline_process import quick
from support.spark.rest_catalog import TOKEN, RestCatalogServer, running_rest_catalog
from support.spark.topics import NINE_MS, Sent, contents, make, send

pytestmark = pytest.mark.timeout(600)

BATCHES = [[Message(0, 3 * b + n, SIX_US + n * MINUTE_US) for n in range(3)] for b in range(2)]
EVERYTHING = [(0, n) for n in range(6)]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with running_object_store() as started:
        yield started


@pytest.fixture
def in_store(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    return store


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalogServer]:
    with running_rest_catalog(tmp_path) as running:
        yield running


def write_without_spark(batch: Any, lake: Lake, query: str, number: int, _column: None) -> list[Written]:
    told = write_hours(lake, batch_file(query, number, 0), iter([batch.rows]))
    written = [Written(**row) for reported in told for row in reported.to_pylist()]
    publish(lake, written)
    return written


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hour_files, "write", write_without_spark)


def run_batches(lake: Lake, form: str, catalog: CatalogSettings | None = None) -> None:
    """From the first batch on, as after a crash before Spark had noted any."""
    position = begin(lake, "orders", form, 1, catalog=catalog)
    writer = BatchWriter(lake, open_table(lake, position, catalog), position)
    context = SimpleNamespace(getLocalProperty=lambda _name: QUERY)
    session = SimpleNamespace(sparkContext=context)
    for number, messages in enumerate(BATCHES):
        writer(SimpleNamespace(sparkSession=session, rows=record_batch(messages)), number)  # type: ignore[arg-type]


def offsets_in(table: Iceberg) -> list[int]:
    rows = table.table().scan(selected_fields=("offset",)).to_arrow()
    return sorted(rows.column("offset").to_pylist())


def settings_of(rest: RestCatalogServer, table: str | None = None) -> CatalogSettings:
    properties = {"uri": rest.address, "token": TOKEN}
    return CatalogSettings(name="prod", properties=properties, table=table)


GLUE = CatalogSettings(name="glue", properties={"type": "glue"}, table="lakes.orders")


# -- REST --------------------------------------------------------------------------------------------------


def test_a_table_in_a_rest_catalog(rest: RestCatalogServer, tmp_path: Path) -> None:
    lake, catalog = Lake(str(tmp_path / "lake")), settings_of(rest, "sales.eu.orders")
    for _ in range(2):
        run_batches(lake, "iceberg", catalog)
    position = require_position(lake)
    assert offsets_in(open_iceberg(lake, position, catalog)) == list(range(6))
    assert TOKEN not in (tmp_path / "lake" / POSITION).read_text()
    assert rest.behind.table_exists(("sales", "eu", "orders"))
    assert not lake.exists("_forebay/iceberg.db")


def test_later_commands_find_the_secrets_of_a_catalog_in_its_configuration(
    rest: RestCatalogServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    run_batches(lake, "iceberg", settings_of(rest))
    with pytest.raises(PipelineError, match=r"the Iceberg catalog prod cannot be used: .*no token"):
        archive_files(lake, require_position(lake))
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", TOKEN)
    assert seen_in(lake, archive_files(lake, require_position(lake))) == EVERYTHING


def test_a_table_of_somebody_else_is_refused(rest: RestCatalogServer, tmp_path: Path) -> None:
    run_batches(Lake(str(tmp_path / "first")), "iceberg", settings_of(rest))
    second = Lake(str(tmp_path / "second"))
    with pytest.raises(PipelineError, match=r"archive.orders of catalog prod lies in .*first, not in"):
        run_batches(second, "iceberg", settings_of(rest))


def test_an_archive_stays_in_its_catalog(rest: RestCatalogServer, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    run_batches(lake, "iceberg")
    with pytest.raises(PipelineError, match=r"has its table in a file of its own, as archive.orders"):
        run_batches(lake, "iceberg", settings_of(rest))
    with pytest.raises(PipelineError, match="a catalog is for Iceberg tables"):
        run_batches(Lake(str(tmp_path / "files")), "delta", settings_of(rest))
    with pytest.raises(PipelineError, match=r"--table orders is not NAMESPACE.NAME"):
        run_batches(Lake(str(tmp_path / "named")), "iceberg", settings_of(rest, "orders"))


@pytest.mark.parametrize(
    "properties", [{}, {"uri": "http://127.0.0.1:1"}, {"type": "nothing"}], ids=["none", "silent", "type"]
)
def test_a_catalog_that_cannot_be_used(tmp_path: Path, properties: dict[str, str]) -> None:
    catalog = CatalogSettings(name="nowhere", properties=properties)
    with pytest.raises(PipelineError, match="the Iceberg catalog nowhere cannot be used: "):
        Iceberg(Lake(str(tmp_path)), "orders", catalog=catalog).check()


# -- object stores -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.chaos)])
def test_a_table_in_an_object_store_is_interrupted_between_requests(in_store: ObjectStore, form: str) -> None:
    catalog = GLUE if form == "iceberg" else None
    lake = Lake(in_store.location())
    before = in_store.gate.requests
    run_batches(lake, form, catalog and named(catalog, lake))
    needed = in_store.gate.requests - before
    for requests in range(1, needed, 1 + needed // 8):
        lake = Lake(in_store.location())
        own = catalog and named(catalog, lake)
        # Each library has errors of its own for a store that refuses.
        with in_store.shut_after(requests), contextlib.suppress(Exception):
            run_batches(lake, form, own)
        run_batches(lake, form, own)
        position = require_position(lake)
        assert seen_in(lake, archive_files(lake, position)) == EVERYTHING, f"after {requests} requests"
        if form == "delta":
            rows = DeltaTable(lake.location).to_pyarrow_table(columns=["offset"])
            assert sorted(rows.column(0).to_pylist()) == list(range(6))
        else:
            assert offsets_in(open_iceberg(lake, position, own)) == list(range(6))


def named(catalog: CatalogSettings, lake: Lake) -> CatalogSettings:
    """A table for each lake."""
    bucket = lake.location.split("/")[2].replace("-", "_")
    return CatalogSettings(name=catalog.name, properties=catalog.properties, table=f"lakes.{bucket}")


def test_an_iceberg_archive_in_an_object_store_needs_a_catalog(in_store: ObjectStore) -> None:
    with pytest.raises(PipelineError, match="needs a catalog: name one with --catalog NAME"):
        run_batches(Lake(in_store.location()), "iceberg")


# -- with Spark, as commands -------------------------------------------------------------------------------


@pytest.mark.chaos  # a minute each
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_commands_archive_merge_and_replay_a_table_in_an_object_store(
    broker: BrokerProcess, in_store: ObjectStore, tmp_path: Path, jvm_options: str, form: str
) -> None:
    topic, again = f"stored-{form}", f"stored-{form}-again"
    make(broker.bootstrap, **{topic: 1, again: 1})
    send(broker.bootstrap, topic, [Sent(b"%d" % n, b"k", 0, NINE_MS + n) for n in range(20)])
    lake = in_store.location()
    glue = ["--catalog", "glue", "--catalog-conf", "type=glue", "--table", f"lakes.{topic.replace('-', '_')}"]
    options = ["--format", form, *(glue if form == "iceberg" else [])]

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            command("pipeline", *arguments, "--json", "--master", "local[2]", *quick(jvm_options)),
            env=environment(broker.bootstrap),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    batch = ("--once", "--batch-records", "5", "--checkpoint", str(tmp_path / "checkpoint"))
    archived = run("archive", topic, "--to", lake, *options, *batch)
    assert "20" in json.dumps(archived)
    run("compact", lake)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Lake(lake)
        assert len(archive_files(found, require_position(found))) == 1
    run("replay", lake, "--to", again, "--checkpoint", str(tmp_path / "replay"))
    sent, got = contents(broker.bootstrap, topic), contents(broker.bootstrap, again)
    assert [one.content for one in got] == [one.content for one in sent]
