"""Guards every check of a password: a slot, and the count of failures."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from api.sessions.attempts import Attempts, network_of
from api.sessions.fair_slots import FairSlots


@dataclass
class PasswordAttempt:
    """One check of a password; the caller reports whether it was right."""

    right: bool = False


class PasswordGate:
    """Lets a caller try a password: when a slot is free for its network, and not too often.

    The count is read in the slot, so that a flood costs Redis and SQL no more than it gets slots.
    """

    def __init__(self, *, slots: FairSlots, attempts: Attempts) -> None:
        self._slots = slots
        self._attempts = attempts

    @asynccontextmanager
    async def attempt(self, email: str, address: str) -> AsyncIterator[PasswordAttempt]:
        """The attempt of somebody at `address`. Raises ApiError 429 or 503.

        What ends in an error was no failure of the caller, and is not counted.
        """
        network = network_of(address)
        async with self._slots.slot(network):
            await self._attempts.take(email, network)
            attempt = PasswordAttempt()
            try:
                yield attempt
            except BaseException:
                await self._attempts.give_back(email, network)
                raise
            if attempt.right:
                await self._attempts.forgive(email, network)
