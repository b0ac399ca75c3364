"""Name look-ups that cannot wait for each other.

The system's resolver blocks a thread for as long as a name server pleases, and the loop's own
threads are few. So each name has a thread of its own while it is looked up, one at most; who asks
meanwhile waits for the same answer.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence

REMEMBER_SECONDS = 5.0
_MOST_NAMES = 10_000

LookUp = Callable[[str], Sequence[str]]
_Answer = asyncio.Future[Sequence[str]]


def look_up(host: str) -> Sequence[str]:
    """Every address of a name, from the system's resolver. Blocks. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Names:
    """Looks names up and remembers the answers, and failures, for `remember` seconds.

    An instance is a `Resolve`. What it remembers is checked again at every call, so it need not
    be the newest. The threads are daemons: a look-up that hangs does not keep the process.
    """

    def __init__(self, *, look_up: LookUp = look_up, remember: float = REMEMBER_SECONDS) -> None:
        self._look_up = look_up
        self._remember = remember
        self._answers: dict[str, tuple[float, _Answer]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:  # noqa: ARG002
        """Every address of `host`. Raises OSError or UnicodeError."""
        loop = asyncio.get_running_loop()
        asked, answer = self._answers.get(host, (0.0, None))
        if answer is None or (answer.done() and asked + self._remember <= loop.time()):
            answer = self._begin(host, loop)
        # The others who wait for it are not to be cancelled with this one.
        return await asyncio.shield(answer)

    def _begin(self, host: str, loop: asyncio.AbstractEventLoop) -> _Answer:
        if len(self._answers) >= _MOST_NAMES:
            self._answers = {h: a for h, a in self._answers.items() if not a[1].done()}
        answer: _Answer = loop.create_future()
        answer.add_done_callback(_retrieve)
        self._answers[host] = (loop.time(), answer)
        work = threading.Thread(
            target=self._work, args=(host, loop, answer), name=f"look-up of {host}", daemon=True
        )
        work.start()
        return answer

    def _work(self, host: str, loop: asyncio.AbstractEventLoop, answer: _Answer) -> None:
        try:
            found = self._look_up(host)
        except (OSError, UnicodeError) as error:
            _hand_over(loop, answer.set_exception, error)
        else:
            _hand_over(loop, answer.set_result, found)


def _hand_over(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], value: object) -> None:
    try:
        loop.call_soon_threadsafe(settle, value)
    except RuntimeError:
        # The loop has ended while the name server took its time; nobody waits any more.
        return


def _retrieve(answer: _Answer) -> None:
    """Whoever asked may have gone; then nobody misses the error."""
    if not answer.cancelled():
        answer.exception()
