"""Where the checkpoint of a query lies that names none."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from forebay.spark.pipelines.queries.checkpoints import default_checkpoint

ARGUMENTS = ("broker:9092", "a cluster", "SELECT 1", "totals")


def test_it_does_not_depend_on_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.add(default_checkpoint(*ARGUMENTS, {}))
    (place,) = found
    assert place.startswith(str(Path.home() / ".local" / "state" / "forebay" / "checkpoints" / "sql-totals-"))
    assert default_checkpoint("other:9092", "a cluster", "SELECT 1", "totals", {}) == place
    assert default_checkpoint("broker:9092", "another", "SELECT 1", "totals", {}) != place
    assert default_checkpoint("broker:9092", "a cluster", "SELECT 2", "totals", {}) != place


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"XDG_STATE_HOME": "/state"}, "/state/forebay/checkpoints/"),
        ({"XDG_STATE_HOME": "/state", "FOREBAY_STATE_DIR": "/ours"}, "/ours/checkpoints/"),
        ({"XDG_STATE_HOME": "state"}, str(Path.home())),
    ],
)
def test_the_environment_may_name_the_place(environ: dict[str, str], place: str) -> None:
    assert default_checkpoint(*ARGUMENTS, environ).startswith(place)


def test_one_that_an_earlier_version_has_made_here_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"FOREBAY_STATE_DIR": str(tmp_path / "state")}
    own = Path(default_checkpoint(*ARGUMENTS, environ))
    digest = hashlib.sha256(json.dumps(["broker:9092", "SELECT 1", "totals"]).encode()).hexdigest()[:12]
    earlier = tmp_path / "forebay-checkpoints" / f"sql-totals-{digest}"
    earlier.mkdir(parents=True)
    assert default_checkpoint(*ARGUMENTS, environ) == str(earlier)
    own.mkdir(parents=True)
    assert default_checkpoint(*ARGUMENTS, environ) == str(own)
