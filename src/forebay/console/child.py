"""The console as a child of a broker or a local cluster: settings in, address out, ends with its parent."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import threading
from typing import TYPE_CHECKING

from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.console.serving import Console


def main() -> int:
    given = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from forebay.console.serving import Console
    except ImportError as error:
        return _fail(f"the console needs more packages ({error.name}): pip install 'forebay[console]'")
    from forebay.console.settings import ClusterSettings, ConsoleSettings

    properties = dict(given["client"])
    bootstrap = properties.pop("bootstrap.servers")
    cluster = ClusterSettings(name="local", bootstrap=bootstrap, properties=properties)
    console = Console(
        ConsoleSettings(clusters=(cluster,), token=secrets.token_urlsafe(24), port=given["port"])
    )
    try:
        console.bind()
    except ForebayError as error:
        return _fail(str(error))
    threading.Thread(target=_end_with_parent, args=(console,), daemon=True).start()
    console.run(lambda: _say(f"console: {console.url}"))
    return 0


def _end_with_parent(console: Console) -> None:
    sys.stdin.read()
    console.stop()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fail(reason: str) -> int:
    _say(f"no console: {reason}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
