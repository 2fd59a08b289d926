"""Spark's classes between starts: where they are kept, and that a JVM takes the options."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest

from forebay.spark import class_archive
from forebay.spark.class_archive import AUTOMATIC_VERSION_MIN, VARIABLE, options
from forebay.spark.session import _java_at, find_java, java_homes

JAVA, SPARK = Path("/java"), Path("/spark")


def test_an_archive_for_each_java_and_spark_where_java_can_make_it(tmp_path: Path) -> None:
    environ = {VARIABLE: str(tmp_path / "new")}
    found = options(JAVA, 21, SPARK, environ)
    assert f'"-XX:SharedArchiveFile={tmp_path}/new/spark-' in found
    assert found == options(JAVA, 21, SPARK, environ)
    assert found != options(JAVA, 21, Path("/other"), environ)


def test_an_earlier_java_is_asked_for_the_archive_until_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {VARIABLE: str(tmp_path)}
    asked = options(JAVA, 17, SPARK, environ)
    making = Path(asked.partition('"-XX:ArchiveClassesAtExit=')[2].rstrip('"'))
    making.write_bytes(b"ours")
    assert options(JAVA, 17, SPARK, environ) == asked, "the process lives"
    ended = making.with_suffix(".999999999")
    making.replace(ended)
    assert options(JAVA, 17, SPARK, environ) == asked, "the JVM may still write"
    monkeypatch.setattr(class_archive, "FINISHED_S", 0.0)
    found = options(JAVA, 17, SPARK, environ)
    assert found.endswith(f'"-XX:SharedArchiveFile={ended.with_suffix("")}"')
    ended.write_bytes(b"of another process")
    assert options(JAVA, 17, SPARK, environ) == found
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"ours"]


def test_a_jvm_of_any_version_makes_it_and_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of Spark's own programs; its own log tells where a class came from."""
    java, spark = find_java(), Path(pyspark.__file__).parent
    monkeypatch.setattr(class_archive, "FINISHED_S", 0.0)
    monkeypatch.setattr(class_archive, "_is_running", lambda _pid: False)
    monkeypatch.setenv("SPARK_HOME", str(spark))
    monkeypatch.setenv("SPARK_SCALA_VERSION", "2.13")
    (launcher,) = spark.glob("jars/spark-launcher*.jar")
    sources = []
    for number in range(2):
        log = tmp_path / f"classes-{number}"
        given = shlex.split(options(*java, spark, {VARIABLE: str(tmp_path / "kept")}))
        command: list[Path | str] = [
            java.home / "bin" / "java",
            *given,
            f"-Xlog:class+load:file={log}",
            "-cp",
            launcher,
        ]
        run([*command, "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "--version"])
        (line,) = (line for line in log.read_text().splitlines() if "org.apache.spark.launcher.Main " in line)
        sources.append("shared objects file" in line)
    assert sources == [False, True]


def test_where_it_is_kept(tmp_path: Path) -> None:
    assert options(JAVA, 21, SPARK, {VARIABLE: ""}) == "", "not wanted"
    assert f"={tmp_path}/forebay/spark-" in options(JAVA, 21, SPARK, {"XDG_CACHE_HOME": str(tmp_path)})
    (tmp_path / "file").touch()
    assert options(JAVA, 21, SPARK, {VARIABLE: str(tmp_path / "file" / "x")}) == "", "no place"


def test_a_jvm_makes_the_archive_when_it_ends(tmp_path: Path) -> None:
    found = (
        java for home in java_homes() if (java := _java_at(home)) and java.version >= AUTOMATIC_VERSION_MIN
    )
    java = next((java for java in found if (java.home / "bin" / "javac").exists()), None)
    if java is None:
        pytest.skip(f"there is no compiler of Java {AUTOMATIC_VERSION_MIN} or later here")
    program = tmp_path / "Hello.java"
    program.write_text("class Hello { public static void main(String[] a) { System.out.println(1); } }")
    run([java.home / "bin" / "javac", program])
    classes = tmp_path / "hello.jar"  # as Spark's are; a directory of classes cannot be archived
    run([java.home / "bin" / "jar", "cf", classes, "-C", tmp_path, "Hello.class"])
    given = shlex.split(options(*java, SPARK, {VARIABLE: str(tmp_path)}))
    for _ in range(2):
        assert run([java.home / "bin" / "java", *given, "-cp", classes, "Hello"]) == ("1\n", "")
        assert list(tmp_path.glob("spark-*.jsa"))


def run(command: Sequence[Path | str]) -> tuple[str, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr
