"""Which company has a turn, and which is next."""

import asyncio
from collections import Counter

import pytest

from engine.process.cancelling import cancel
from engine.trigger.fair_turns import FairTurns
from tests.servers.waiting import eventually


async def busy(turns: FairTurns, company: int, log: list[int], times: int) -> None:
    for _ in range(times):
        async with turns.turn(company):
            log.append(company)
            await asyncio.sleep(0)


async def test_no_company_has_them_all() -> None:
    turns = FairTurns(4)
    many = [asyncio.create_task(busy(turns, 1, [], 10**9)) for _ in range(20)]
    try:
        for _ in range(100):
            await asyncio.sleep(0)
            assert turns._running[1] <= 3
            async with asyncio.timeout(5):
                async with turns.turn(2):  # without waiting for any of them
                    assert turns._running.total() <= 4
    finally:
        await cancel(many)
    assert not turns._running
    async with turns.turn(1):
        pass


async def test_companies_take_turns_whatever_they_have() -> None:
    turns, log = FairTurns(2), list[int]()
    tasks = [asyncio.create_task(busy(turns, 1, log, 500)) for _ in range(10)]
    tasks += [asyncio.create_task(busy(turns, company, log, 50)) for company in (2, 3, 4)]
    await asyncio.gather(*tasks)
    early = Counter(log[:200])
    assert len(log) == 5150
    # A fourth would be 50; in the order of arrival they would have had a thirteenth each.
    assert all(early[company] >= 35 for company in (2, 3, 4)), early


@pytest.mark.parametrize("after", range(6))
async def test_a_cancelled_waiter_leaves_its_turn_to_others(after: int) -> None:
    turns = FairTurns(2)
    async with turns.turn(1):
        waiting = [asyncio.create_task(busy(turns, 1, [], 3)) for _ in range(5)]
        for _ in range(after):
            await asyncio.sleep(0)
        await cancel(waiting[:3])
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting[3:])
    assert not turns._running
    assert not turns._waiting


async def test_those_who_wait_for_a_server_do_not_keep_others_from_going_on() -> None:
    turns = FairTurns(4, stalled_after=0.01)
    never = asyncio.Event()

    async def hang(company: int) -> None:
        async with turns.turn(company):
            await never.wait()

    hanging = [asyncio.create_task(hang(company)) for company in (1, 2, 3) for _ in range(4)]
    async with asyncio.timeout(5):
        async with turns.turn(4):
            pass
        await busy(turns, 1, [], 20)
    await eventually(lambda: turns._stalled == len(hanging), what="each is set aside")
    await cancel(hanging)
    assert (turns._stalled, turns._running.total()) == (0, 0)


async def test_the_number_of_stalled_turns_is_bounded() -> None:
    turns = FairTurns(4, stalled_after=0.01)
    held: list[int] = []

    async def hang(number: int) -> None:
        async with turns.turn(number):
            held.append(number)
            await asyncio.Event().wait()

    hanging = [asyncio.create_task(hang(number)) for number in range(100)]
    await eventually(lambda: len(held) == 20, what="sixteen aside, and four")
    for _ in range(20):
        await asyncio.sleep(0.01)  # there is nothing to wait for: no more of them begin
    assert len(held) == 20
    await cancel(hanging)
