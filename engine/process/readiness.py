"""Questions to servers, asked when somebody wants to know, never remembered."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from catalog.deadline import within
from engine.process.server_errors import ServerErrors

Result = TypeVar("Result")
Check = Callable[[], Awaitable[bool]]

PROBE = "question"  # the kind of call that a question is, where it is not a write
_CHECK_SECONDS = 2.0
_QUESTION_SECONDS = 1.5


class ServerProbe:
    """Asks one server whether it does its work. Those who ask at once share one question.

    `ask` raises when the server does not. `deadline` in seconds.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        *,
        what: str,
        errors: ServerErrors,
        deadline: float = _QUESTION_SECONDS,
    ) -> None:
        self._ask = ask
        self._what = what
        self._errors = errors
        self._deadline = deadline
        self._asking: asyncio.Task[bool] | None = None

    async def answers(self) -> bool:
        """Whether it does, now. Raises nothing."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._answer(), name=f"question {self._what}")
        return await asyncio.shield(self._asking)

    async def _answer(self) -> bool:
        try:
            await within(self._deadline, _coroutine(self._ask))
        except Exception as error:  # a question that cannot be asked is the answer: no
            self._errors.failed(error, self._what)
            return False
        else:
            self._errors.answered(self._what)
            return True
        finally:
            self._asking = None


async def ask_all(checks: Mapping[str, Check]) -> dict[str, bool]:
    """The answers by name, asked at once; one that raises or takes longer than 2 s is no."""
    answers = await asyncio.gather(*(_passes(check) for check in checks.values()))
    return dict(zip(checks, answers, strict=True))


async def _passes(check: Check) -> bool:
    try:
        return await within(_CHECK_SECONDS, _coroutine(check))
    except Exception:  # a check that cannot be made is the answer: not ready
        return False


async def _coroutine(call: Callable[[], Awaitable[Result]]) -> Result:
    return await call()
