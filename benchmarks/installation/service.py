"""The partner's web service, which fails now and then."""

import asyncio
import random
import time

from tests.servers.http_service import (
    Answer,
    HttpService,
    ReceivedRequest,
    content,
    hanging_up,
    replying,
    resetting,
)

_QUICK, _SLOW = 0.03, 0.6
# Of a hundred calls so many are treated so; the others have content.
_FLAWS: tuple[tuple[int, Answer], ...] = (
    (4, replying(503)),
    (3, content(after=_SLOW)),
    (2, resetting),
    (2, hanging_up),
    (1, replying(200, [])),
)


class FlakyPartner:
    """Flawed in twelve of a hundred calls. Down for the last `down` seconds of each `period`."""

    def __init__(self, *, seed: int, period: float = 60.0, down: float = 0.0) -> None:
        self._dice = random.Random(seed)
        self._period = period
        self._down = down
        self._begin = time.monotonic()
        self._content = content(after=_QUICK)
        self._answers = [answer for share, answer in _FLAWS for _ in range(share)]
        self.requested = 0
        self.service = HttpService(self._answer)

    async def _answer(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        self.requested += 1
        self.service.received.clear()  # a long run would fill the memory with them
        since = (time.monotonic() - self._begin) % self._period
        number = self._dice.randrange(100)
        if since > self._period - self._down:
            answer = replying(503)
        else:
            answer = self._answers[number] if number < len(self._answers) else self._content
        await answer(received, writer)
