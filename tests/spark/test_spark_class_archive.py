"""Spark's classes between starts: where they are kept, and that a JVM takes the options."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from forebay.spark.class_archive import JAVA_VERSION_MIN, VARIABLE, options
from forebay.spark.session import _java_at, java_homes

JAVA, SPARK = Path("/java"), Path("/spark")


def test_an_archive_for_each_java_and_spark_where_java_can_make_it(tmp_path: Path) -> None:
    environ = {VARIABLE: str(tmp_path / "new")}
    found = options(JAVA, 21, SPARK, environ)
    assert f'"-XX:SharedArchiveFile={tmp_path}/new/spark-' in found
    assert found == options(JAVA, 21, SPARK, environ)
    assert found != options(JAVA, 21, Path("/other"), environ)
    assert options(JAVA, 17, SPARK, environ) == ""


def test_where_it_is_kept(tmp_path: Path) -> None:
    assert options(JAVA, 21, SPARK, {VARIABLE: ""}) == "", "not wanted"
    assert f"={tmp_path}/forebay/spark-" in options(JAVA, 21, SPARK, {"XDG_CACHE_HOME": str(tmp_path)})
    (tmp_path / "file").touch()
    assert options(JAVA, 21, SPARK, {VARIABLE: str(tmp_path / "file" / "x")}) == "", "no place"


def test_a_jvm_makes_the_archive_when_it_ends(tmp_path: Path) -> None:
    found = (java for home in java_homes() if (java := _java_at(home)) and java.version >= JAVA_VERSION_MIN)
    java = next((java for java in found if (java.home / "bin" / "javac").exists()), None)
    if java is None:
        pytest.skip(f"there is no compiler of Java {JAVA_VERSION_MIN} or later here")
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
