"""Name look-ups that cannot wait for each other, nor for anything else of the process.

The system's resolver blocks a thread for as long as a name server pleases. The loop's own threads
are few, and new connections to SQL and Redis need them for their own names. So names have threads
of their own: one a name while it is looked up, so many in all, and few for one company.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar

REMEMBER_SECONDS = 5.0
MOST_THREADS = 64
MOST_OF_ONE = 4
_MOST_NAMES = 10_000

# The company in whose name the current task looks names up; None: nobody's, and not bounded apart.
asker: ContextVar[int | None] = ContextVar("asker", default=None)

LookUp = Callable[[str], Sequence[str]]
_Answer = asyncio.Future[Sequence[str]]


def look_up(host: str) -> Sequence[str]:
    """Every address of a name, from the system's resolver. Blocks. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class CachingResolver:
    """Looks names up and remembers the answers, and failures, for `remember` seconds.

    An instance is a `Resolve`. What it remembers is checked again at every call, so it need not
    be the newest. The threads are daemons: a look-up that hangs does not keep the process. A
    thread that hangs keeps its place until the name server, or the system, has had enough: then
    who asks for another name waits, and gives up by his own deadline.
    """

    def __init__(
        self,
        *,
        look_up: LookUp = look_up,
        remember: float = REMEMBER_SECONDS,
        threads: int = MOST_THREADS,
        of_one: int = MOST_OF_ONE,
    ) -> None:
        self._look_up = look_up
        self._remember = remember
        self._of_one = of_one
        self._free = asyncio.Semaphore(threads)
        self._running: Counter[int] = Counter()
        self._answers: dict[str, tuple[float, _Answer]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:  # noqa: ARG002
        """Every address of `host`. Raises OSError or UnicodeError."""
        answer = self._known(host)
        if answer is None:
            company_id = asker.get()
            self._check_share(company_id)
            await self._free.acquire()
            # Others may have begun, with this name or others, while this task waited.
            try:
                answer = self._known(host)
                if answer is None:
                    self._check_share(company_id)
                    answer = self._begin(host, company_id)
                else:
                    self._free.release()
            except OSError:
                self._free.release()
                raise
        # The others who wait for it are not to be cancelled with this one.
        return await asyncio.shield(answer)

    def _check_share(self, company_id: int | None) -> None:
        if company_id is not None and self._running[company_id] >= self._of_one:
            raise OSError("the company has too many names that are being looked up")

    def _known(self, host: str) -> _Answer | None:
        asked, answer = self._answers.get(host, (0.0, None))
        if answer is not None and answer.done():
            now = asyncio.get_running_loop().time()
            return answer if now < asked + self._remember else None
        return answer

    def _begin(self, host: str, company_id: int | None) -> _Answer:
        loop = asyncio.get_running_loop()
        if len(self._answers) >= _MOST_NAMES:
            self._answers = {h: a for h, a in self._answers.items() if not a[1].done()}
        answer: _Answer = loop.create_future()
        answer.add_done_callback(lambda done: self._ended(done, company_id))
        self._answers[host] = (loop.time(), answer)
        if company_id is not None:
            self._running[company_id] += 1
        work = threading.Thread(
            target=self._work, args=(host, loop, answer), name="look-up", daemon=True
        )
        try:
            work.start()
        except RuntimeError:  # the system has no thread left
            answer.set_exception(OSError("no thread to look the name up with"))
        return answer

    def _ended(self, answer: _Answer, company_id: int | None) -> None:
        self._free.release()
        if company_id is not None:
            self._running[company_id] -= 1
            if not self._running[company_id]:
                del self._running[company_id]
        if not answer.cancelled():
            answer.exception()  # the caller may have been cancelled; its error is then read here

    def _work(self, host: str, loop: asyncio.AbstractEventLoop, answer: _Answer) -> None:
        try:
            found = self._look_up(host)
        except (OSError, UnicodeError) as error:
            _hand_over(loop, answer.set_exception, error)
        except Exception as error:
            # Whatever a name or its server makes of the resolver: this name cannot be looked up.
            _hand_over(loop, answer.set_exception, OSError(type(error).__name__))
        else:
            _hand_over(loop, answer.set_result, found)


def _hand_over(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], value: object) -> None:
    try:
        loop.call_soon_threadsafe(settle, value)
    except RuntimeError:
        # The loop has ended while the name server took its time; nobody waits any more.
        return
