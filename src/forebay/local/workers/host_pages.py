"""The metrics and the health of a host: what its workers say, asked for when somebody asks.

Each worker serves its own page, on a port of its own; the parent puts them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from forebay.broker.prometheus.families import TEXT
from forebay.broker.prometheus.http_pages import PLAIN, HttpPages, no_page, ready_page, response
from forebay.config.listeners import EVERY_INTERFACE
from forebay.local.workers.merged_metrics import merged
from forebay.local.workers.worker import Worker

_ANSWER_S_MAX = 20.0


class HostPages(HttpPages):
    def __init__(self, workers: Sequence[Worker]) -> None:
        super().__init__()
        self._workers = workers

    async def page_at(self, path: bytes, head: bytes) -> list[bytes]:  # noqa: ARG002 - text for all
        match path:
            case b"/metrics":
                return response("200 OK", TEXT, [await self._metrics()])
            case b"/healthz":
                return response("200 OK", PLAIN, [b"ok\n"])
            case b"/readyz":
                return ready_page(await self._problem())
            case _:
                return no_page()

    async def _metrics(self) -> bytes:
        """A worker that does not answer has no samples but that it is not up."""
        answers = await asyncio.gather(*(_ask(worker, "/metrics") for worker in self._workers))
        pages = {
            worker.number: body
            for worker, (status, body) in zip(self._workers, answers, strict=True)
            if status == 200
        }
        return (merged(pages) + self._own(set(pages))).encode()

    def _own(self, answered: set[int]) -> str:
        up = [
            f'forebay_worker_up{{worker="{each.number}"}} {int(each.number in answered)}'
            for each in self._workers
        ]
        restarts = [
            f'forebay_worker_restarts_total{{worker="{each.number}"}} {each.restarts}'
            for each in self._workers
        ]
        lines = (
            "# HELP forebay_worker_up Whether this worker of the host answers.",
            "# TYPE forebay_worker_up gauge",
            *up,
            "# HELP forebay_worker_restarts_total How often this worker was started again.",
            "# TYPE forebay_worker_restarts_total counter",
            *restarts,
        )
        return "".join(f"{line}\n" for line in lines)

    async def _problem(self) -> str | None:
        """Why no client should be sent here; None if every worker serves."""
        answers = await asyncio.gather(*(_ask(worker, "/readyz") for worker in self._workers))
        for worker, (status, body) in zip(self._workers, answers, strict=True):
            if status != 200:
                return f"worker {worker.number}: {body.strip() or 'it does not answer'}"
        return None


async def _ask(worker: Worker, path: str) -> tuple[int, str]:
    """Status and text of a worker's own page; 0 if there is none."""
    assert worker.plan.metrics is not None
    host, port = worker.plan.metrics
    if not worker.ready.is_set():
        return 0, "it is being started"
    try:
        async with asyncio.timeout(_ANSWER_S_MAX):
            reader, writer = await asyncio.open_connection(
                "localhost" if host in EVERY_INTERFACE else host, port
            )
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        return 0, str(error)
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return int(status[0]) if status and status[0].isdigit() else 0, body.decode(errors="replace")
