"""The attackers' process: bound to one core, so that brokers and good clients have the others."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import resource
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection

from support.siege.attack import Attack
from support.siege.catalogue import ATTACKS
from support.siege.target import Target

_END_S_MAX = 30.0
_START_S_MAX = 60.0


class Besiegers:
    """What they have done, once they have ended."""

    def __init__(self) -> None:
        self.done: Mapping[str, int] = {}


@contextlib.contextmanager
def besiegers(target: Target, names: Sequence[str], share: float = 1.0) -> Iterator[Besiegers]:
    """The attacks of these names, all at once, as long as the block lasts, with this share of connections."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_besiege, args=(target, list(names), share, theirs), daemon=True)
    process.start()
    result = Besiegers()
    try:
        assert ours.poll(_START_S_MAX), "the attackers did not start"
        ours.recv()
        yield result
        ours.send("enough")
        if ours.poll(_END_S_MAX):
            result.done = ours.recv()
        assert result.done, "the attackers have done nothing"
    finally:
        process.kill()
        process.join()
        ours.close()


def _besiege(target: Target, names: Sequence[str], share: float, pipe: Connection) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    done: Counter[str] = Counter()
    attacks = [ATTACKS[name](target, done, share) for name in names]
    gc.freeze()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    asyncio.run(_attack(attacks, pipe))
    pipe.send(dict(done))


async def _attack(attacks: Sequence[Attack], pipe: Connection) -> None:
    for attack in attacks:
        await attack.prepare()
    pipe.send("ready")
    tasks = [asyncio.ensure_future(attack.run()) for attack in attacks]
    try:
        # The pipe is asked by a thread: the loop may have no time for it.
        word = asyncio.ensure_future(asyncio.to_thread(pipe.poll, None))
        ended, _ = await asyncio.wait([word, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()  # an attack that ends by itself has failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
