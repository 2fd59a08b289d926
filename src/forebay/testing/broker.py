"""A broker that lives as long as a `with` block, in a thread of this process or in a child process.

In a thread it is up soonest, and a debugger sees all of it. It shares the interpreter lock with the test, so
load tests, and tests that kill the broker, want the child.

Nothing outside of the broker is touched: no signal handler, no logging set-up, no port that was not free, and
a data directory of its own that is gone afterwards. So two brokers in one process do not meet.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from forebay.local.ports import HOST, ReservedPort
from forebay.local.settings import KEPT, TEST_SETTINGS, BrokerFailed, setting_text

if TYPE_CHECKING:
    from forebay.local.secure_setup import SecureSetup


class Runner(Protocol):
    """How a broker runs: `forebay.testing.embedded` and `forebay.local.child_broker`."""

    def start(self, settings: Mapping[str, str]) -> str:
        """Returns host:port once clients can connect; raises BrokerFailed or ConfigError."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Broker:
    """Start it with `with`, or with start() and stop().

    `settings` are the broker's own, by their Kafka names, and win over TEST_SETTINGS. A `data_dir` of yours
    is kept; otherwise the data lives in a temporary directory that goes away with the broker. `secure`: with
    TLS, logins and ACLs, as `forebay serve --secure` has them; `client_settings` is an administrator's login.
    """

    def __init__(
        self,
        *,
        process: bool = False,
        settings: Mapping[str, object] | None = None,
        data_dir: Path | str | None = None,
        secure: bool = False,
    ) -> None:
        self.process = process
        self.bootstrap_servers = ""
        """host:port, once started; the same after every restart()."""
        self._settings = {name: setting_text(value) for name, value in (settings or {}).items()}
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._secure = secure
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._port: ReservedPort | None = None
        self._runner: Runner | None = None

    @property
    def running(self) -> bool:
        return self._runner is not None

    @property
    def data_dir(self) -> Path:
        """Where the logs are. A temporary one is made when it is first asked for."""
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="forebay-", ignore_cleanup_errors=True)
            self._data_dir = Path(self._temporary.name)
        return self._data_dir

    @property
    def client_settings(self) -> dict[str, str]:
        """librdkafka's settings of a client that may do everything, once started."""
        if not self._secure:
            return {"bootstrap.servers": self.bootstrap_servers}
        return self._setup().client_settings(self.bootstrap_servers)

    # -- life ----------------------------------------------------------------------------------------

    def start(self) -> Broker:
        """Returns when clients can connect. Does nothing when the broker runs already."""
        if self._runner is not None:
            return self
        runner = self._make_runner()
        try:
            self.bootstrap_servers = runner.start(self._all_settings())
        except BaseException:
            runner.kill()
            self._clean_up()
            raise
        self._runner = runner
        return self

    def stop(self) -> None:
        """Stop as a service is stopped, and remove the data unless the directory is yours."""
        try:
            self._stop()
        finally:
            self._clean_up()

    def restart(self) -> Broker:
        """Stop, unless it was killed, and come back with the same data at the same address."""
        self._stop()
        return self.start()

    def kill(self) -> None:
        """SIGKILL: the broker gets no chance to tidy up. Its data stays, restart() brings it back."""
        if not self.process:
            raise BrokerFailed("a thread cannot be killed: use Broker(process=True)")
        if self._runner is not None:
            self._runner.kill()
            self._runner = None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What went wrong in the block matters more than what goes wrong afterwards.
        with contextlib.suppress(BrokerFailed) if error is not None else contextlib.nullcontext():
            self.stop()

    def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()

    def _make_runner(self) -> Runner:
        # Imported here: a child spares this process the broker's modules, and the plugin needs neither.
        if self.process:
            from forebay.local.child_broker import ChildBroker

            return ChildBroker()
        from forebay.testing.embedded import BrokerThread

        return BrokerThread()

    def _all_settings(self) -> dict[str, str]:
        if self._port is None:
            self._port = ReservedPort(int(self.bootstrap_servers.rpartition(":")[2] or 0))
        address = f"{HOST}:{self._port.number}"
        own = {"listeners": f"PLAINTEXT://{address}", "log.dirs": str(self.data_dir)}
        defaults = TEST_SETTINGS if self._temporary is not None else TEST_SETTINGS | KEPT
        if not self._secure:
            return {**defaults, **self._settings, **own}
        setup = self._prepared()
        own["listeners"] = f"{setup.protocol}://{address}"
        return {**defaults, **setup.settings(), **self._settings, **own}

    def _prepared(self) -> SecureSetup:
        from forebay.config import broker_config

        setup = self._setup()
        setup.make_files([HOST])
        setup.add_users(broker_config({"log.dirs": str(self.data_dir)}))
        return setup

    def _setup(self) -> SecureSetup:
        # Most tests need no certificates, and start sooner without the library for them.
        from forebay.local.secure_setup import SecureSetup

        return SecureSetup(self.data_dir / "security")

    def _clean_up(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            port.close()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()
            self._data_dir = None
