"""`forebay pipeline`: what is wrong is said before Spark is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from forebay.cli.client import Client, CommandError
from forebay.cli.pipeline.board import print_summaries
from forebay.cli.pipeline.commands import pipeline
from forebay.cli.pipeline.engine import Engine
from forebay.cli.pipeline.run import run_steps
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.steps_file import load, steps_of
from forebay.cli.pipeline.supervisor import StepFailed
from forebay.errors import ErrorCode, KafkaError
from forebay.spark.pipelines import Brokers, Job, PipelineError, Summary
from forebay.spark.pipelines.archiving import archive
from forebay.spark.pipelines.archiving.layout import POSITION, Position
from forebay.spark.pipelines.jobs import Cause
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import forebay
from support.spark.archives import Message, make_archive
from support.spark.topics import Sent, make, send


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("archive orders", "Missing option '--to'"),
        ("archive orders --to x --once --every 1m", "--once and --every exclude each other"),
        ("archive orders --to x --every soon", "'soon' is no time: give 500ms, 30s, 1m"),
        ("archive orders --to x --format csv", "'csv' is not one of"),
        ("archive orders --to x --decode confluent-avro", "--decode and --registry belong together"),
        ("archive orders --to x --decode avro --registry http://x", "'avro' is not one of"),
        ("replay x --to y --rate 5 --speed 2x", "--rate and --speed exclude each other"),
        ("replay x --to y --speed 0x", "--speed 0x is no speed"),
        ("replay x --to y --speed fast", "--speed fast is no speed"),
        ("replay x --to y --from tomorrow", "'tomorrow' is no time"),
        ("compact x --target-size big", "'big' is no size"),
        ("compact x --target-size 0", "'0' is no size"),
        ("sql q --to y --schema orders", "'orders' is not KEY=VALUE"),
        ("stats x --conf nonsense", "'nonsense' is not KEY=VALUE"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: str, problem: str) -> None:
    done = forebay("pipeline", *arguments.split())
    assert done.code == 2
    assert problem in done.err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (": [", "is no YAML"),
        ("", "declares nothing"),
        ("steps: []", "declares nothing"),
        ("steps: [1]", "step 1 is not of the form"),
        ("steps: [{archive: x}]", "step 1 is not of the form"),
        ("colour: red\nsteps: [{compact: {archive: x}}]", "there is no 'colour'"),
        ("conf: 5\nsteps: [{compact: {archive: x}}]", "conf is not a list"),
        ("steps: [{paint: {}}]", "there is no 'paint': choose archive, compact, replay, sql, stats"),
        ("steps: [{run: {file: x}}]", "there is no 'run'"),
        ("steps: [{archive: {topic: orders}}]", "step 1 (archive): Missing option '--to'"),
        ("steps: [{archive: {to: x}}]", "step 1 (archive): Missing argument 'TOPIC'"),
        (
            "steps: [{compact: {archive: x, colour: red}}]",
            "there is no 'colour': choose archive, target-size",
        ),
        ("steps: [{replay: {archive: x, to: y, speed: fast}}]", "--speed fast is no speed"),
    ],
)
def test_a_wrong_file_is_refused_whole(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "steps.yml"
    file.write_text(content)
    done = forebay("pipeline", "run", str(file))
    assert done.code == 1
    assert problem in done.err
    assert len(done.err.splitlines()) == 1


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_engine: Engine, *, quick: bool) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(Engine, "session", start)


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess) -> BrokerProcess:
    make(broker.bootstrap, checked_orders=1)
    return broker


SELECT = "SELECT * FROM stream('checked-orders')"
MISTAKES = {
    "archive nothing --to x --once": "there is no topic nothing: `forebay topic create nothing` makes it",
    "archive checked-orders --to FILE/x --once": "--to FILE/x: FILE is a file, not a directory",
    "archive checked-orders --to /proc/x --once": "--to /proc/x: no file can be made in /proc (",
    "archive checked-orders --to x --checkpoint /proc/x": "--checkpoint /proc/x: no file can be made",
    "archive checked-orders --to OTHER --once": "OTHER is an archive of topic orders as parquet",
    "archive checked-orders --to x --checkpoint FILE/x": "--checkpoint FILE/x: FILE is a file",
    "archive checked-orders --to x --master sprak://h:1": "--master sprak://h:1 is no master: give local[2]",
    "archive checked-orders --to x --master local[0]": "--master local[0] is no master",
    "archive checked-orders --to x --master spark://127.0.0.1:1": "nobody answers there (connection refused)",
    "archive checked-orders --to x --master spark://h:y": "'h:y' is not HOST:PORT",
    "archive checked-orders --to x --master sc://127.0.0.1:1": "nobody answers there (connection refused)",
    "archive checked-orders --to x --master yarn": "--master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR",
    "archive checked-orders --to x -b 127.0.0.1:1": "no broker answers at 127.0.0.1:1",
    "archive checked-orders --to x --decode confluent-avro --registry http://127.0.0.1:1": "no schema",
    "compact nowhere": "is no archive: `forebay pipeline archive TOPIC --to",
    "replay nowhere --to checked-orders": "is no archive",
    "replay OTHER --to nothing": "there is no topic nothing",
    "stats ./nowhere": "is no archive",
    "stats nothing": "there is no topic nothing",
    "stats checked-orders --report x.pdf": "has no known form: end its name with .png",
    "stats checked-orders --report FILE/x.png": "--report FILE: FILE is a file, not a directory",
    "sql QUERY --to nothing": "there is no topic nothing",
    "sql QUERY --to checked-orders --schema other=x": "it reads checked-orders",
    "sql QUERY --to checked-orders --format checked-orders=xml": "there is no format xml: choose json",
    "sql QUERY --to checked-orders --format checked-orders=confluent-json": "confluent-json need a registry",
    "sql QUERY --to checked-orders --schema checked-orders=@nowhere": "the schema in nowhere cannot be read",
    "sql QUERY --to checked-orders --watermark checked-orders=soon": "the watermark 'soon' is neither",
}


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_line_before_spark_is_started(
    line: str, orders: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    places = {"FILE": str(tmp_path / "file"), "OTHER": str(tmp_path / "other"), "QUERY": SELECT}
    (tmp_path / "file").touch()
    make_archive(tmp_path / "other")

    def filled(text: str) -> str:
        for name, value in places.items():
            text = text.replace(name, value)
        return text

    arguments = [filled(part) for part in line.split()]
    done = forebay("pipeline", *arguments, bootstrap=orders.bootstrap)
    assert done.code == (75 if "nobody answers" in done.err or "no broker answers" in done.err else 1)
    assert filled(MISTAKES[line]) in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.usefixtures("no_spark")
def test_a_step_may_read_the_archive_that_an_earlier_one_makes(orders: BrokerProcess, tmp_path: Path) -> None:
    """So the file fails at its last step only."""
    file = tmp_path / "steps.yml"
    lake = tmp_path / "lake"
    file.write_text(
        f"steps: [{{archive: {{topic: checked-orders, to: {lake}}}}}, {{compact: {{archive: {lake}}}}},"
        f" {{stats: {{source: {tmp_path}/nowhere}}}}]"
    )
    done = forebay("pipeline", "run", str(file), bootstrap=orders.bootstrap)
    assert f"{tmp_path}/nowhere is no archive" in done.err


def test_a_file_that_is_not_there() -> None:
    done = forebay("pipeline", "run", "/nowhere.yml")
    assert done.err == "forebay: /nowhere.yml cannot be read: No such file or directory\n"


def test_steps_are_parsed_by_their_commands(tmp_path: Path) -> None:
    file = tmp_path / "steps.yml"
    file.write_text(
        """
        steps:
          - archive: {topic: orders, to: /lake, once: true, batch-records: 5}
          - sql:
              query: -- a comment first
                SELECT 1
              to: totals
              once: false
              schema: {orders: "id INT", users: "@users.avsc"}
              watermark: [orders=1 minute]
          - stats: {source: /lake, report: x.png}
        """
    )
    steps = steps_of(pipeline, load(file), click.Context(pipeline))
    assert [step.name for step in steps] == ["archive orders", "sql to totals", "stats of /lake"]


def test_the_jvm_of_a_short_run_starts_sooner(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an archive with little to do, and of a compaction."""
    asked = []

    def start(_engine: Engine, *, quick: bool) -> None:
        asked.append(quick)
        raise CommandError("enough")

    monkeypatch.setattr(Engine, "session", start)
    make(broker.bootstrap, short_orders=2)
    send(broker.bootstrap, "short-orders", [Sent(b"x", partition=n % 2) for n in range(5)])
    assert Brokers(bootstrap=broker.bootstrap).offsets_left("short-orders", {"0": 1, "1": 7}) == 2
    lake = make_archive(tmp_path / "lake", [Message(0, 0, 0)])
    lake.write(POSITION, Position(topic="short-orders", partitions=2, next_offsets={"0": 1}).to_json())
    once = f"archive short-orders --to {lake.location} --once"
    stream = f"archive short-orders --to {lake.location}"
    for limit, arguments in ((4, once), (3, once), (4, stream), (0, f"compact {lake.location}")):
        monkeypatch.setattr(archive, "SHORT_RECORDS", limit)
        assert "enough" in forebay("pipeline", *arguments.split(), bootstrap=broker.bootstrap).err
    assert asked == [True, False, False, True]


def test_the_end_of_a_step_is_forgotten_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Spark was stopped and the summary printed: who is killed before that does not begin anew."""
    told: list[str] = []
    stopping: Any = SimpleNamespace(stop=lambda: told.append("Spark stopped"))
    monkeypatch.setattr(Engine, "check", lambda _engine: None)
    monkeypatch.setattr(Engine, "session", lambda _engine, *, quick: stopping)
    over: Any = SimpleNamespace(isActive=False, recentProgress=[], lastProgress=None, exception=lambda: None)

    def forget() -> None:
        told.append("forgotten" if "the job" in capsys.readouterr().out else "forgotten too soon")

    def start(_spark: object, _brokers: Brokers) -> Job:
        return Job("the job", over, ends=True, closed=lambda: told.append("closed"), forget=forget)

    run_steps([Step(name="a step", start=start)], Engine(master="local", conf={}), None, as_json=False)
    assert told == ["closed", "Spark stopped", "forgotten"]


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "steps.yml"
    file.write_text(
        "bootstrap-server: a:1\nmaster: yarn\nconf: {spark.x: 1, spark.y: true}\nproperties: {client.id: x}\n"
        "steps: [{compact: {archive: x}}]"
    )
    declared = load(file)
    command = pipeline.commands["run"]
    given = Engine(master="local[3]", conf={"spark.x": "2"})
    client = Client(bootstrap="b:2")
    with command.make_context("run", [str(file)]) as bare:
        assert declared.engine(bare, given).master == "yarn"
        assert declared.client(bare, client) == Client(bootstrap="a:1", properties={"client.id": "x"})
    with command.make_context("run", ["--master", "local[3]", "-b", "b:2", str(file)]) as told:
        engine = declared.engine(told, given)
        assert (engine.master, engine.conf) == ("local[3]", {"spark.x": "2", "spark.y": "true"})
        assert declared.client(told, client).bootstrap == "b:2"


def test_summaries_are_for_people_or_programs(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary(title="a replay", facts={"rows": 12345, "partitions kept": True, "speed": 1.5})
    print_summaries([summary], as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["a replay", "rows 12,345", "partitions kept yes", "speed 1.5"]
    print_summaries([summary], as_json=True)
    assert '"partitions_kept": true' in capsys.readouterr().out


LOST = PipelineError("gone", Cause("DataLoss", "gone"))


@pytest.mark.parametrize(
    ("error", "exit_code", "without_brokers"),
    [
        (PipelineError("no such column"), 1, 75),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION, "nobody answers"), 1, 75),
        (LOST, 65, 65),
        (PipelineError("garbage", Cause("UnreadableBatch", "garbage")), 65, 65),
        (StepFailed("a step: gone", LOST), 65, 65),
        (OSError(28, "No space left on device"), 1, 75),
    ],
)
def test_exit_codes_tell_a_scheduler_what_to_do(
    broker: BrokerProcess,
    error: Exception,
    exit_code: int,
    without_brokers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what went wrong, and by whether the brokers answer afterwards."""
    spark: Any = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(Engine, "check", lambda _engine: None)
    monkeypatch.setattr(Engine, "session", lambda _engine, *, quick: spark)
    knocks = iter([None, None, None, CommandError("no broker answers")])

    def knock(_client: Client) -> None:
        if (problem := next(knocks)) is not None:
            raise problem

    def fail(*_: object) -> Summary:
        raise error

    if exit_code != 65:  # the others are not asked
        monkeypatch.setattr(Client, "knock", knock)
    for expected in (exit_code, without_brokers):
        with pytest.raises(CommandError) as raised:
            run_steps(
                [Step(name="a step", start=fail)],
                Engine(master="local", conf={}),
                Client(bootstrap=broker.bootstrap),
                as_json=False,
            )
        assert raised.value.exit_code == expected
        assert len(str(raised.value).splitlines()) == 1
