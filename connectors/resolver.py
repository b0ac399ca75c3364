"""Looks up host names in separate threads, so that a slow name server delays nothing else.

The system's resolver blocks its thread until the name server answers. The event loop has few
threads, and new connections to SQL and Redis need them. So each look-up has its own thread. The
number of threads is bounded, in all and for one company.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar

CACHE_SECONDS = 5.0
MOST_THREADS = 64
MOST_THREADS_PER_COMPANY = 4
_MOST_CACHED = 10_000

# The company for which the current task looks up names; None: the bound for one company is off.
resolving_company: ContextVar[int | None] = ContextVar("resolving_company", default=None)

LookUp = Callable[[str], Sequence[str]]
_Answer = asyncio.Future[Sequence[str]]


def look_up(host: str) -> Sequence[str]:
    """Every address of a name, from the system's resolver. Blocks. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class CachingResolver:
    """Looks up names and caches addresses and failures for `cache_seconds`.

    Implements `egress.Resolve`. Cached addresses may be stale, but the guard checks them at every
    call. The threads are daemons, so a look-up that hangs does not delay the end of the process. It
    keeps its thread until the system's resolver gives up. While all threads hang, other look-ups
    wait until their callers' deadlines.
    """

    def __init__(
        self,
        *,
        look_up: LookUp = look_up,
        cache_seconds: float = CACHE_SECONDS,
        threads: int = MOST_THREADS,
        threads_per_company: int = MOST_THREADS_PER_COMPANY,
    ) -> None:
        self._look_up = look_up
        self._cache_seconds = cache_seconds
        self._threads_per_company = threads_per_company
        self._free = asyncio.Semaphore(threads)
        self._looking_up: Counter[int] = Counter()
        self._answers: dict[str, tuple[float, _Answer]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:  # noqa: ARG002
        """Every address of `host`. Raises OSError or UnicodeError."""
        answer = self._cached(host)
        if answer is None:
            company_id = resolving_company.get()
            self._check_share(company_id)
            await self._free.acquire()
            # Other tasks may have started look-ups, also of this name, while this task waited.
            try:
                answer = self._cached(host)
                if answer is None:
                    self._check_share(company_id)
                    answer = self._begin(host, company_id)
                else:
                    self._free.release()
            except OSError:
                self._free.release()
                raise
        # Cancelling this task must not cancel the look-up, because other tasks may wait for it.
        return await asyncio.shield(answer)

    def _check_share(self, company_id: int | None) -> None:
        if company_id is not None and self._looking_up[company_id] >= self._threads_per_company:
            raise OSError("the company has too many names that are being looked up")

    def _cached(self, host: str) -> _Answer | None:
        since, answer = self._answers.get(host, (0.0, None))
        if answer is not None and answer.done():
            now = asyncio.get_running_loop().time()
            return answer if now < since + self._cache_seconds else None
        return answer

    def _begin(self, host: str, company_id: int | None) -> _Answer:
        loop = asyncio.get_running_loop()
        if len(self._answers) >= _MOST_CACHED:
            self._answers = {h: a for h, a in self._answers.items() if not a[1].done()}
        answer: _Answer = loop.create_future()
        answer.add_done_callback(lambda done: self._ended(done, company_id))
        self._answers[host] = (loop.time(), answer)
        if company_id is not None:
            self._looking_up[company_id] += 1
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
            self._looking_up[company_id] -= 1
            if not self._looking_up[company_id]:
                del self._looking_up[company_id]
        if not answer.cancelled():
            answer.exception()  # retrieves the error, which a cancelled caller does not do

    def _work(self, host: str, loop: asyncio.AbstractEventLoop, answer: _Answer) -> None:
        try:
            found = self._look_up(host)
        except (OSError, UnicodeError) as error:
            _hand_over(loop, answer.set_exception, error)
        except Exception as error:
            # The resolver could not handle the name or the name server's answer.
            _hand_over(loop, answer.set_exception, OSError(type(error).__name__))
        else:
            _hand_over(loop, answer.set_result, found)


def _hand_over(
    loop: asyncio.AbstractEventLoop, complete: Callable[..., None], value: object
) -> None:
    try:
        loop.call_soon_threadsafe(complete, value)
    except RuntimeError:
        # The loop has ended meanwhile, so no task waits for the answer.
        return
