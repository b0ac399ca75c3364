"""Bounds the cost of parsing one reply, and shares parsing time among companies.

A reply of few bytes can keep a parser busy for long: chunks of one byte, interim replies, a
thousand header lines. So steps of parsing are counted and paced besides bytes.
"""

import asyncio
from collections import OrderedDict, deque

from connectors.errors import ReplyLimitError

FREE_STEPS = 24  # an honest reply takes about six
STEPS_PER_SLICE = 8  # some 0.1 ms of processor time
SLICE_SECONDS = 0.001
_HEAD_LINES_A_STEP = 2
_LINES_A_STEP = 64  # of a body they cost nothing, but those of a trailer look the same


class ParserPacer:
    """Gives the parsers of costly replies time slices, one at a time, companies in turn.

    There is one slice of STEPS_PER_SLICE steps every SLICE_SECONDS. So all costly replies together
    take a bounded share of the processor, and each company gets an equal part of it.
    """

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, company_id: int) -> None:
        """Wait for the company's next time slice."""
        loop = asyncio.get_running_loop()
        slice_ = loop.create_future()
        self._waiting.setdefault(company_id, deque()).append(slice_)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._next)
        await slice_

    def _next(self) -> None:
        self._timer = None
        while self._waiting:
            company_id, slices = self._waiting.popitem(last=False)
            slice_ = slices.popleft()
            if slices:
                self._waiting[company_id] = slices
            if not slice_.done():  # else the call was cut off while it waited
                slice_.set_result(None)
                break
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._next)


class ReplyBudget:
    """The limits of one reply: bytes on the wire, and `steps` of each kind of parsing.

    The kinds are reads, events of the parser, and lines of a head. Each method raises
    ReplyLimitError over its limit. After FREE_STEPS the coroutines wait for a time slice.
    """

    def __init__(self, *, wire_bytes: int, steps: int, pacer: ParserPacer, company_id: int) -> None:
        self._bytes_left = self._wire_bytes = wire_bytes
        self._reads_left = self._events_left = self._lines_left = self._steps = steps
        self._pacer = pacer
        self._company_id = company_id
        self._credit = FREE_STEPS

    def take_bytes(self, count: int) -> None:
        """Count bytes that came off the wire."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise ReplyLimitError(f"a reply of more than {self._wire_bytes} bytes in all")

    async def take_read(self, data: bytes, *, is_head: bool) -> None:
        """Count data before it is parsed. `is_head`: the head of the reply is not complete yet."""
        lines = data.count(b"\n")
        of_head = min(lines, data.partition(b"\r\n\r\n")[0].count(b"\n") + 2) if is_head else 0
        self._reads_left -= 1
        self._lines_left -= of_head
        if self._reads_left < 0 or self._lines_left < 0:
            raise ReplyLimitError(f"a reply in more than {self._steps} pieces or header lines")
        others = lines - of_head
        await self._pace(1 + of_head // _HEAD_LINES_A_STEP + others // _LINES_A_STEP)

    async def take_event(self) -> None:
        """Count an event of the parser."""
        self._events_left -= 1
        if self._events_left < 0:
            raise ReplyLimitError(f"a reply of more than {self._steps} chunks and interim replies")
        await self._pace(1)

    async def _pace(self, steps: int) -> None:
        self._credit -= steps
        while self._credit < 0:
            await self._pacer.wait(self._company_id)
            self._credit += STEPS_PER_SLICE
