"""The attackers' processes: bound to one core, so that brokers and good clients have the others."""

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
from support.siege.busy_core import FLOOR
from support.siege.catalogue import ATTACKS
from support.siege.target import Target

_KINDS = {**ATTACKS, **FLOOR}
_END_S_MAX = 30.0
_START_S_MAX = 60.0
_HEAD_START_S = 1.0
"""For logins of users, before others come."""


class Besiegers:
    """What they have done, once they have ended."""

    def __init__(self) -> None:
        self.done: Mapping[str, int] = {}


@contextlib.contextmanager
def besiegers(target: Target, names: Sequence[str], share: float = 1.0) -> Iterator[Besiegers]:
    """The attacks of these names, all at once, as long as the block lasts, with this share of connections.

    Users come before strangers, and in a process of their own: otherwise they would be among the first whom
    a flood of strangers keeps from their logins.
    """
    users = [name for name in names if _KINDS[name].logged_in]
    strangers = [name for name in names if not _KINDS[name].logged_in]
    result = Besiegers()
    done: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        crowds = [stack.enter_context(_crowd(target, some, share)) for some in (users, strangers) if some]
        yield result
        for pipe in crowds:
            pipe.send("enough")
        for pipe in crowds:
            assert pipe.poll(_END_S_MAX), "attackers did not end"
            done.update(pipe.recv())
    result.done = done
    idle = [name for name in names if not any(each.startswith(f"{name}: ") for each in done)]
    assert not idle, f"attackers have done nothing: {idle}"


@contextlib.contextmanager
def _crowd(target: Target, names: Sequence[str], share: float) -> Iterator[Connection]:
    """The attackers of one process, once they have begun."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_besiege, args=(target, list(names), share, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(_START_S_MAX), "attackers did not start"
        ours.recv()
        yield ours
    finally:
        process.kill()
        process.join()
        ours.close()


def _besiege(target: Target, names: Sequence[str], share: float, pipe: Connection) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    done: Counter[str] = Counter()
    attacks = [_KINDS[name](target, done, share) for name in names]
    gc.freeze()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    asyncio.run(_attack(attacks, pipe))
    pipe.send(dict(done))


async def _attack(attacks: Sequence[Attack], pipe: Connection) -> None:
    for attack in attacks:
        await attack.prepare()
    tasks = [asyncio.ensure_future(attack.run()) for attack in attacks]
    try:
        await asyncio.sleep(_HEAD_START_S)
        pipe.send("ready")
        # The pipe is asked by a thread: the loop may have no time for it.
        word = asyncio.ensure_future(asyncio.to_thread(pipe.poll, None))
        ended, _ = await asyncio.wait([word, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()  # an attack that ends by itself has failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
