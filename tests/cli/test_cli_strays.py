"""`forebay log strays`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forebay.cli.log.commands import log as log_command
from forebay.errors import StorageError
from forebay.storage.datadir import DataDir, DataDirLocked
from forebay.storage.log.config import LogConfig
from forebay.storage.real_disk import RealDisk
from support.machines.storing import fill

TOPIC_ID = bytes(range(16))


@pytest.fixture
def stray(tmp_path: Path) -> str:
    """The name of a log with five messages."""
    data = DataDir.open(RealDisk(), str(tmp_path))
    log = data.open_log("t", 3, LogConfig(), topic_id=TOPIC_ID)
    fill(log, 5)
    path = data.put_aside("t", 3, "the reason", 1_700_000_000_000, log)
    data.close()
    return Path(path).name


def run(*arguments: str, data_dir: Path) -> Result:
    command = ["strays", *arguments, "--data-dir", str(data_dir)]
    result = CliRunner().invoke(log_command, command, standalone_mode=False)
    if isinstance(result.exception, StorageError):
        raise result.exception
    return result


def test_list(tmp_path: Path, stray: str) -> None:
    (found,) = json.loads(run("list", "--json", data_dir=tmp_path).stdout)
    assert found["directory"] == stray
    assert (found["topic"], found["partition"], found["topic_id"]) == ("t", 3, "AAECAwQFBgcICQoLDA0ODw")
    assert (found["start_offset"], found["end_offset"], found["reason"]) == (0, 5, "the reason")
    assert found["since"].startswith("2023-11-14T22:13:20")
    heading, line = run("list", data_dir=tmp_path).stdout.splitlines()
    assert heading.split()[0] == "DIRECTORY"
    assert line.startswith(stray)
    assert line.endswith("the reason")


def test_restore_needs_a_stopped_broker(tmp_path: Path, stray: str) -> None:
    data = DataDir.open(RealDisk(), str(tmp_path))
    with pytest.raises(DataDirLocked):
        run("restore", stray, data_dir=tmp_path)
    data.close()
    assert "t-3" in run("restore", stray, data_dir=tmp_path).stdout
    assert (tmp_path / "t-3").is_dir()
    with pytest.raises(StorageError, match="no log"):
        run("restore", stray, data_dir=tmp_path)


def test_remove(tmp_path: Path, stray: str) -> None:
    data = DataDir.open(RealDisk(), str(tmp_path))  # a running broker
    refused = run("remove", stray, data_dir=tmp_path)
    assert "--yes" in str(refused.exception)
    assert (tmp_path / stray).is_dir()
    run("remove", stray, "--yes", data_dir=tmp_path)
    assert not (tmp_path / stray).exists()
    data.close()


def test_what_has_its_name_is_removed_under_the_lock_only(tmp_path: Path) -> None:
    data = DataDir.open(RealDisk(), str(tmp_path))
    data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID).files.close()
    data.note_unused("t", 0, "unknown", 1)
    with pytest.raises(DataDirLocked):
        run("remove", "t-0", "--yes", data_dir=tmp_path)
    data.close()
    run("remove", "t-0", "--yes", data_dir=tmp_path)
    assert not (tmp_path / "t-0").exists()
