"""Changes of tokens: one user makes one at a time, and others do not wait for it."""

from __future__ import annotations

import asyncio

from forebay.broker.tokens.change_turns import ChangeTurns


async def test_a_user_makes_one_change_at_a_time_and_others_do_not_wait() -> None:
    turns = ChangeTurns(asyncio.get_running_loop().time, 1000)
    under_way: dict[str, int] = {}
    most: dict[str, int] = {}
    others = asyncio.Event()

    async def change(user: str) -> None:
        async with turns.of(user):
            under_way[user] = under_way.get(user, 0) + 1
            most[user] = max(most.get(user, 0), under_way[user])
            if user == "eve":
                await others.wait()
            under_way[user] -= 1

    waiting = [asyncio.create_task(change("eve")) for _ in range(50)]
    await asyncio.gather(*(change("ada") for _ in range(20)))
    others.set()
    await asyncio.gather(*waiting)
    assert most == {"eve": 1, "ada": 1}


async def test_beyond_the_rate_changes_wait() -> None:
    now = 0.0
    turns = ChangeTurns(lambda: now, 100)
    for _ in range(1001):  # what is allowed at once, and one more
        async with turns.of("eve"):
            pass
    late = asyncio.create_task(_one(turns, "eve"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not late.done()
    async with turns.of("ada"):
        pass
    await late


async def _one(turns: ChangeTurns, user: str) -> None:
    async with turns.of(user):
        pass


async def test_users_who_change_nothing_are_forgotten() -> None:
    now = 0.0
    turns = ChangeTurns(lambda: now, 10)
    for number in range(1000):
        await _one(turns, str(number))
    now = 60.0
    await _one(turns, "another")
    assert len(turns) == 1


async def test_a_change_that_fails_gives_up_its_turn() -> None:
    turns = ChangeTurns(asyncio.get_running_loop().time, 1000)
    for _ in range(3):
        try:
            async with turns.of("ada"):
                raise ValueError
        except ValueError:
            pass
    await _one(turns, "ada")
