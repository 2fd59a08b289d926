"""What a process imports and makes before it does its work: counts, which do not depend on the machine.

The bounds are a little above what was counted. A part that is imported too early is far more than that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from forebay.broker.warm_up import CERTIFICATES, KEYS, RARE, SQL, used_libraries, warm_modules
from forebay.config import broker_config
from forebay.core.cluster.image import ClusterImage
from forebay.testing import Broker

_MODULES_MAX, _OBJECTS_MAX = (520, 40_000) if sys.version_info < (3, 14) else (535, 48_000)
"""Python 3.14 brings more of its own."""
_COUNT = """
import sys
before = set(sys.modules)  # those of the interpreter, and of what is installed beside us
import gc, json

def count():
    ours = [name for name in sys.modules if name.partition(".")[0] == "forebay"]
    objects = gc.get_freeze_count() + len(gc.get_objects())
    files = sum(not hasattr(sys.modules[name], "__path__") for name in ours)
    new = len(sys.modules.keys() - before)
    print(json.dumps({"ours": ours, "files": files, "all": new, "objects": objects}))
"""

_SERVE = (
    _COUNT
    + """
import os, signal
import click

def ready(text, **_):
    count()
    os.kill(os.getpid(), signal.SIGTERM)

click.echo = ready
from forebay.cli.main import run
run(["serve", "--listen", "127.0.0.1:0", "--data", sys.argv[1], "--set", "forebay.warm.up.enable=false"])
"""
)

_TOPIC_LIST = (
    _COUNT
    + """
import contextlib, io
from forebay.cli.main import run
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    assert run(["topic", "list", "-b", sys.argv[1]]) == 0
count()
"""
)

_EMBEDDED = (
    _COUNT
    + """
from forebay.testing import Broker
cold = {"forebay.warm.up.enable": "false"}  # which would import while objects are counted
with Broker(settings=cold):
    count()
    gc.disable()
    for _ in range(3):
        before = len(gc.get_objects())
        with Broker(settings=cold):
            print(json.dumps(len(gc.get_objects()) - before))
"""
)


class Counted(NamedTuple):
    ours: list[str]
    files: int
    """Those of them that are no folders."""
    all: int
    objects: int


def counted(script: str, *arguments: str) -> tuple[Counted, list[str]]:
    """What the script counts, and the lines that it prints after that."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    return Counted(**json.loads(first)), rest


@pytest.fixture(scope="module")
def at_ready(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """Of `forebay serve`."""
    return counted(_SERVE, str(tmp_path_factory.mktemp("data")))[0]


def test_a_broker_that_is_ready_has_imported_and_made_little(at_ready: Counted) -> None:
    assert at_ready.files <= 300
    assert at_ready.all <= _MODULES_MAX
    assert at_ready.objects <= _OBJECTS_MAX


@pytest.mark.parametrize(
    "package",
    [
        "handlers",
        "shares",
        "record_moves",
        "views",
        "delays",
        "prometheus",
        "authentication",
        "coordinators.groups",
        "coordinators.transactions",
        "replication.fetcher",
        "cluster.failover.peer_watch",
        "tls.stream",
    ],
)
def test_a_single_broker_that_is_ready_has_nothing_of(package: str, at_ready: Counted) -> None:
    whole = f"forebay.broker.{package}"
    assert [name for name in at_ready.ours if name == whole or name.startswith(f"{whole}.")] == []


def test_a_broker_that_is_ready_has_nothing_of_the_console(at_ready: Counted) -> None:
    assert [name for name in at_ready.ours if name.startswith("forebay.console")] == []


def test_an_embedded_broker_is_as_light_and_a_second_one_makes_few_objects() -> None:
    embedded, more = counted(_EMBEDDED)
    assert embedded.files <= 300
    # Tasks that a broker has created make objects when they first run, which may be after it is ready: those
    # of the first broker are then counted with the second (370 more). So it is the least of three.
    assert min(map(int, more)) <= 1_500


def test_a_command_imports_what_it_uses() -> None:
    with Broker() as broker:
        at_end, _ = counted(_TOPIC_LIST, broker.bootstrap_servers)
    assert len(at_end.ours) <= 55
    assert at_end.all <= 257
    assert at_end.objects <= 27_000


def test_importing_the_package_imports_nothing_else() -> None:
    imported, _ = counted(f"{_COUNT}\nimport forebay\ncount()")
    assert imported.ours == ["forebay"]


def test_warming_up_leaves_out_only_what_needs_large_libraries() -> None:
    script = f"""{_COUNT}
from forebay.broker.warm_up import WarmUp
warm_up = WarmUp()
warm_up.start()
warm_up._thread.join()
count()
"""
    warm, _ = counted(script)
    assert set(warm_modules()) <= set(warm.ours)
    assert not {f"{SQL}.syntax", KEYS, CERTIFICATES} & {*warm.ours}
    assert not [name for name in warm_modules() if name.startswith(RARE)]


def test_libraries_that_a_broker_uses_are_warmed_up() -> None:
    image = ClusterImage(cluster_id="c")
    plain, oauth = broker_config(), broker_config({"sasl.oauthbearer.jwks.endpoint.url": "https://keys"})
    assert used_libraries(plain, image) == set()
    assert used_libraries(oauth, image) == {KEYS}
    assert KEYS in warm_modules({KEYS})
    assert f"{SQL}.syntax" in warm_modules({SQL})
