"""Fixtures for every layer: brokers as child processes (`support/brokers/broker_process.py`)."""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import itertools
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support.brokers.broker_process import BrokerProcess, StartBroker, running_broker
from support.brokers.nursery import NURSERY
from support.waiting import ended

if TYPE_CHECKING:
    from support.work_sharing import WorkSharing

pytest_plugins = ["support.hard_limit"]

# A busy machine must not fail a property: the time of one example says nothing about it.
settings.register_profile("forebay", deadline=None)
settings.load_profile("forebay")

# Hundreds of processes import the same modules, which takes twice as long where each compiles them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# In the background of a shell Ctrl-C is ignored, also by every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 2 << 30


def _keep_temporary_files_in_memory() -> None:
    """Half the time of a broker that lives for a second goes into forcing files to disk. A kill does not show
    the difference; the tests of the storage itself are on a disk."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= MEMORY_BYTES_MIN and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


_keep_temporary_files_in_memory()

# Until all tests are collected next to nothing of what is made is garbage.
gc.disable()

TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """In a fresh clone pytest prepares each module of tests for its assertions, which takes longer than the
    rest of the collection. So each worker of pytest-xdist begins with modules of its own, and finds the
    others on disk."""
    worker = getattr(config, "workerinput", None)
    if worker is None or [Path(given).resolve() for given in config.args] != [TESTS]:
        return
    modules = sorted(TESTS.rglob("test_*.py"))
    for module in modules[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if str(module.parent) not in sys.path:
            sys.path.insert(0, str(module.parent))
        # What is wrong with it is told when it is collected.
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(module.stem)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What the workers of pytest-xdist share out: modules, whose fixtures are then built once. The tests on
    a Spark session are one lot, and those that start Spark by themselves another: more than two JVMs at a
    time starve each other until Spark gives up. Those of a module marked `spread` share nothing that is
    slow. `support/work_sharing.py` says which worker gets what."""
    if hasattr(config, "workerinput"):
        from support.work_sharing import place

        items.sort(key=lambda item: place(item.nodeid))
    for item in items:
        if _needs(item, "spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif _needs(item, "jvm_options"):
            item.add_marker(pytest.mark.xdist_group("jvm"))
        elif item.get_closest_marker("spread") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)  # pytest-xdist need not be there
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> WorkSharing | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    from support.work_sharing import WorkSharing

    return WorkSharing(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What waits for ever in a coroutine says which of its tasks does."""
    test = getattr(item, "obj", None)
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(test) and not inspect.ismethod(test):
        item.obj = ended(test)


def pytest_collection_finish() -> None:
    """Seven thousand tests and their modules stay: no collection of garbage need look at them."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    NURSERY.close()


def _needs(item: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the whole session: use topic names of your own, and leave it running."""
    # Many tests write messages of long ago, and this broker lives through several rounds of retention.
    settings = "log.retention.check.interval.ms=86400000"
    with running_broker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of this test alone: free to be killed and restarted."""
    with running_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """`start_broker("key=value", ...)`: as many brokers with settings of their own as the test wants."""
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:

        def start(*settings: str, environ: dict[str, str] | None = None) -> BrokerProcess:
            data = tmp_path / f"data-{next(numbers)}"
            return stack.enter_context(running_broker(data, *settings, environ=environ))

        yield start


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    # The module belongs to it: two modules may have tests of the same name, and share the broker.
    name = f"{request.module.__name__.rpartition('.')[2]}.{request.node.name}"
    return "".join(char if char.isalnum() else "-" for char in name)[:200]
