"""The budget of a reply, to the step, and the turns of parsers of costly replies."""

import asyncio

import pytest

from connectors.errors import ReplyLimitError
from connectors.reply_budget import FREE_STEPS, STEPS_PER_SLICE, ParserPacer, ReplyBudget

COMPANY = 7


class CountingPacer(ParserPacer):
    """Lets everybody go on at once, and counts who had to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[int] = []

    async def wait(self, company_id: int) -> None:
        self.waits.append(company_id)


def budget(
    pacer: ParserPacer | None = None, *, wire_bytes: int = 100, steps: int = 1000
) -> ReplyBudget:
    return ReplyBudget(
        wire_bytes=wire_bytes, steps=steps, pacer=pacer or CountingPacer(), company_id=COMPANY
    )


def test_bytes_are_counted_over_all_reads() -> None:
    one = budget(wire_bytes=100)
    one.take_bytes(60)
    one.take_bytes(40)
    with pytest.raises(ReplyLimitError, match=r"^a reply of more than 100 bytes in all$"):
        one.take_bytes(1)


@pytest.mark.parametrize("is_head", [True, False])
async def test_reads_are_counted(is_head: bool) -> None:
    one = budget(steps=3)
    for _ in range(3):
        await one.take_read(b"x", is_head=is_head)
    with pytest.raises(ReplyLimitError, match=r"^a reply in more than 3 pieces or header lines$"):
        await one.take_read(b"x", is_head=is_head)


async def test_events_are_counted() -> None:
    one = budget(steps=3)
    for _ in range(3):
        await one.take_event()
    with pytest.raises(
        ReplyLimitError, match=r"^a reply of more than 3 chunks and interim replies$"
    ):
        await one.take_event()


async def test_lines_of_a_head_are_counted_over_all_reads() -> None:
    one = budget(steps=3)
    await one.take_read(b"a: b\r\nc: d\r\n", is_head=True)
    await one.take_read(b"e: f\r\n", is_head=True)
    with pytest.raises(ReplyLimitError):
        await one.take_read(b"g: h\r\n", is_head=True)


@pytest.mark.parametrize(("steps", "fits"), [(3, True), (2, False)])
async def test_lines_behind_the_head_are_no_header_lines(steps: int, fits: bool) -> None:
    """The status line, a header and the blank line; then a body of many lines."""
    data = b"HTTP/1.1 200 OK\r\na: b\r\n\r\n" + 50 * b"\r\n"
    one = budget(steps=steps)
    if fits:
        await one.take_read(data, is_head=True)
        await one.take_read(1000 * b"\n", is_head=False)
    else:
        with pytest.raises(ReplyLimitError):
            await one.take_read(data, is_head=True)


async def test_an_honest_reply_never_waits_and_a_long_one_every_few_steps() -> None:
    pacer = CountingPacer()
    one = budget(pacer)
    for _ in range(FREE_STEPS):
        await one.take_event()
    assert pacer.waits == []
    for _ in range(STEPS_PER_SLICE):
        await one.take_event()
    assert pacer.waits == [COMPANY]
    await one.take_event()
    assert pacer.waits == [COMPANY] * 2


@pytest.mark.parametrize(
    ("data", "is_head", "cost"),
    [
        (b"x", True, 1),
        (b"\n", True, 1),
        (2 * b"\n", True, 2),
        (3 * b"\n", True, 2),
        (4 * b"\n", True, 3),
        (63 * b"\n", False, 1),
        (64 * b"\n", False, 2),
        (127 * b"\n", False, 2),
        (128 * b"\n", False, 3),
        (b"a\r\nb\r\n\r\n" + 62 * b"\n", True, 2),
        (b"a\r\nb\r\n\r\n" + 64 * b"\n", True, 3),
    ],
)
async def test_the_cost_of_a_read(data: bytes, is_head: bool, cost: int) -> None:
    for free, waits in ((cost, 0), (cost - 1, 1)):
        pacer = CountingPacer()
        one = budget(pacer)
        for _ in range(FREE_STEPS - free):
            await one.take_event()
        await one.take_read(data, is_head=is_head)
        assert len(pacer.waits) == waits


async def test_a_turn_may_be_too_short_for_one_read() -> None:
    pacer = CountingPacer()
    one = budget(pacer)
    await one.take_read(2 * (FREE_STEPS + STEPS_PER_SLICE) * b"\n", is_head=True)
    assert len(pacer.waits) == 2


async def tick(pacer: ParserPacer) -> None:
    """The next turn, and whoever it lets go on."""
    pacer._next()
    await asyncio.sleep(0)


async def test_companies_take_turns_one_reply_a_turn() -> None:
    pacer = ParserPacer(60.0)
    waiting = [asyncio.create_task(pacer.wait(company)) for company in (1, 1, 1, 2)]
    await asyncio.sleep(0)
    done = []
    for _ in waiting:
        await tick(pacer)
        done.append([each.done() for each in waiting])
    assert done == [
        [True, False, False, False],
        [True, False, False, True],
        [True, True, False, True],
        [True, True, True, True],
    ]


async def test_a_call_that_was_cut_off_costs_no_turn() -> None:
    pacer = ParserPacer(60.0)
    cut_off, other = (asyncio.create_task(pacer.wait(company)) for company in (1, 2))
    await asyncio.sleep(0)
    cut_off.cancel()
    await asyncio.sleep(0)
    await tick(pacer)
    assert other.done()


async def test_turns_come_by_themselves_and_begin_again_after_a_rest() -> None:
    pacer = ParserPacer(0.001)
    async with asyncio.timeout(10):
        await asyncio.gather(*(pacer.wait(company) for company in (1, 1, 2)))
        await pacer.wait(1)


async def test_a_turn_lasts_as_long_as_it_is_set() -> None:
    pacer = ParserPacer(0.05)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with asyncio.timeout(10):
        await asyncio.gather(*(pacer.wait(1) for _ in range(3)))
    assert loop.time() - begin >= 0.14  # a timer may be early by its resolution
