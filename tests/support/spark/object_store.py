"""An object store that speaks S3: moto's server in this process, behind a gate that can be shut.

A gate that is shut refuses everything, as if the client had been killed before that request.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from forebay.spark.pipelines.lake import Lake

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_FORBIDDEN = b"<Error><Code>AccessDenied</Code><Message>the gate is shut</Message></Error>"

_READING = ("GET", "HEAD")
_NUMBERS = itertools.count()
"""Of buckets: all servers of a process have the same, because moto keeps them for the process."""


class Gate:
    """Lets requests through; a budget, where there is one, is how many.

    Those that write go one by one: moto looks at a condition and then writes, which in S3 is one step.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._writes = threading.Lock()
        self.budget: int | None = None
        self.methods: list[str] = []
        """Of all requests, those that were refused included."""

    @property
    def requests(self) -> int:
        return len(self.methods)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            self.methods.append(environ["REQUEST_METHOD"])
            refused = self.budget == 0
            if self.budget:
                self.budget -= 1
        if refused:
            # Clients repeat what a server says it could not do; what they may not do they give up.
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [_FORBIDDEN]
        if environ["REQUEST_METHOD"] in _READING:
            return self._application(environ, start_response)
        with self._writes:
            return self._application(environ, start_response)


class ObjectStore:
    def __init__(self, port: int, gate: Gate) -> None:
        self.gate = gate
        self._port = port

    def lake(self) -> Lake:
        """A directory in a bucket of its own."""
        name = f"lake-{next(_NUMBERS)}"
        files = fs.S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self._port}",
            allow_bucket_creation=True,
            # The machine may be busy for longer than pyarrow waits by default.
            request_timeout=60,
            connect_timeout=60,
        )
        files.create_dir(name)
        return Lake(f"s3://{name}/archive", (files, f"{name}/archive"))

    def copy_of(self, lake: Lake) -> Lake:
        """The same objects in a bucket of their own. The store copies them by itself: no request is made."""
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        copied = self.lake()
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        source, target = (each.path().partition("/")[0] for each in (lake, copied))
        for name, found in list(backend.buckets[source].keys.items()):
            backend.copy_object(found, target, name)
        return copied

    def environment(self) -> dict[str, str]:
        """Variables by which pyarrow, deltalake and boto find the store."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def location(self) -> str:
        """The URI of a directory in a bucket of its own."""
        return self.lake().location

    def moments(self, before: int) -> list[int]:
        """After how many of the requests since then a client may be killed, so that each time it leaves
        something else: killed before a request that only reads it leaves what is there before the next write.
        """
        since = enumerate(self.gate.methods[before:])
        return [number for number, method in since if method not in _READING]

    @contextlib.contextmanager
    def shut_after(self, requests: int) -> Iterator[None]:
        self.gate.budget = requests
        try:
            yield
        finally:
            self.gate.budget = None


@contextlib.contextmanager
def running_object_store() -> Iterator[ObjectStore]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # imports that are not ours to tidy
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        def log(self, *_arguments: Any) -> None: ...

    gate = Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, name="object-store")
    thread.start()
    try:
        yield ObjectStore(server.server_port, gate)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
