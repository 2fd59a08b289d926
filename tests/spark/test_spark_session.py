"""Sessions: which Java, which settings, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay.errors import ForebayError
from forebay.spark.session import (
    DRIVER_OPTIONS,
    QUICK_OPTIONS,
    SETTINGS,
    Java,
    _named,
    _settings,
    find_java,
    session,
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which Java can only be where a test puts it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys.modules["forebay.spark.session"], "_JAVA_DIRECTORIES", (f"{tmp_path}/jvm/*",))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def install(home: Path, version: str, *, release: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_is_looked_for_in_java_home_then_the_path_then_the_usual_places(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install(machine / "jvm" / "java-21", "21.0.2")
    assert find_java() == Java(installed, 21)
    on_path = install(machine, "17.0.15", release=False)
    assert find_java() == Java(on_path, 17)
    chosen = install(machine / "chosen", "25")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert find_java() == Java(chosen, 25)


def test_a_java_that_is_too_old_is_passed_over(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "old", "1.8.0_402")))
    good = install(machine / "jvm" / "good", "17.0.1")
    assert find_java() == Java(good, 17)


def test_without_a_java_that_fits_the_error_says_what_there_is_and_what_to_do(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ForebayError, match=r"needs Java 17 or later and found none\. Install one"):
        find_java()
    old = install(machine / "old", "1.8.0_402", release=False)
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(ForebayError, match=f"only found Java 8 in {old}"):
        find_java()


def test_a_setting_that_is_not_sparks_is_refused() -> None:
    with pytest.raises(ForebayError, match=r"executor_memory is no setting of Spark"):
        session("test", executor_memory="1g")


def test_what_the_caller_sets_wins_and_booleans_are_sparks() -> None:
    given = _named({"spark_ui_enabled": True, "spark.driver.extraJavaOptions": "-Dlog4j.x=y -Da=b"})
    settings = _settings("local[2]", True, given)
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings[DRIVER_OPTIONS] == f"{QUICK_OPTIONS} -Dlog4j.x=y -Da=b"
    assert "spark.driver.host" not in _settings("spark://somewhere:7077", False, {})


def test_a_session_has_the_settings_that_matter(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert {name: conf.get(name) for name in SETTINGS} == dict(SETTINGS)
    assert session("another name").sparkContext is spark.sparkContext
