"""A number of recorders that are killed, frozen, started and stopped while they work."""

import random
import signal
from collections.abc import Awaitable, Callable

from tests.servers.waiting import eventually
from tests.system.rig import Command, Rig

_DEADLINE = 60.0

Count = Callable[[], Awaitable[int]]
Check = Callable[[], Awaitable[bool]]


class Crew:
    """`size` recorders. `count` returns how many records are recorded, `is_done` whether all are
    that have been published so far.
    """

    def __init__(
        self, rig: Rig, dice: random.Random, *, size: int, count: Count, is_done: Check
    ) -> None:
        self._rig = rig
        self._dice = dice
        self._count = count
        self._is_done = is_done
        self.members = [rig.recorder() for _ in range(size)]
        self.happened: list[str] = []

    async def until_ready(self) -> None:
        """Wait until all can do their work."""
        for member in self.members:
            await member.until_ready()

    async def disturb(self) -> None:
        """Kill, freeze or restart one recorder, after it has worked for a random time."""
        disturbances = [self._kill, self._kill, self._restart]
        if len(self.members) > 1:
            disturbances += [self._join, self._freeze]
        disturb = self._dice.choice(disturbances)
        self.happened.append(disturb.__name__)
        await self.until_progress(self._dice.randint(1, 5000))
        await disturb(self._dice.randrange(len(self.members)))

    async def until_progress(self, records: int) -> None:
        """Wait until so many more records are recorded, or all of them."""
        before = await self._count()
        await eventually(
            lambda: self._has_reached(before + records), deadline=_DEADLINE, what="progress"
        )

    async def stop(self) -> None:
        """Stop all recorders with SIGTERM; each must exit with 0."""
        for member in self.members:
            await member.stop()

    async def _has_reached(self, records: int) -> bool:
        for member in self.members:
            assert member.process.poll() is None, member.output
        return await self._count() >= records or await self._is_done()

    async def _kill(self, number: int) -> None:
        self.members[number].kill()
        self.members[number] = self._rig.recorder()

    async def _restart(self, number: int) -> None:
        await self.members[number].until_ready()
        await self.members[number].stop()
        self.members[number] = self._rig.recorder()

    async def _join(self, number: int) -> None:
        """Start another recorder and kill it after a while: two rebalances."""
        await self.members[number].until_ready()
        other_member = self._rig.recorder()
        await other_member.until_ready()
        other_member.kill()

    async def _freeze(self, number: int) -> None:
        """Freeze a recorder until the others own its partitions; then resume it."""
        frozen = self.members[number]
        other = self.members[number - 1]
        await self.until_ready()
        before = _assignments(other)
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            await eventually(
                lambda: _assignments(other) > before, deadline=_DEADLINE, what="a rebalance"
            )
        finally:
            frozen.process.send_signal(signal.SIGCONT)


def _assignments(member: Command) -> int:
    return member.output.count("partitions assigned")
