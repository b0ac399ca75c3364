"""Processes of one role that are killed, frozen and restarted; settings of all processes."""

import random
import signal

from tests.servers.proximity import Command, Rig
from tests.servers.waiting import eventually

# Of processes that are killed and frozen: their partitions soon have another owner.
KILLED = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5"}


class Crew:
    """Processes of one role, of which one at a time is killed, frozen or restarted."""

    def __init__(
        self, rig: Rig, role: str, size: int, dice: random.Random, **settings: str
    ) -> None:
        self._start = lambda: rig.role(role, **KILLED | settings)
        self._dice = dice
        self.members = [self._start() for _ in range(size)]

    def assert_running(self) -> None:
        """Assert that no member has ended by itself."""
        for member in self.members:
            member.assert_running()

    async def until_ready(self) -> None:
        """Wait until every member is ready."""
        for member in self.members:
            await member.until_ready()

    async def harm(self, *kinds: str) -> None:
        """Do one of `kinds`, which may be there twice, to a member: kill, restart, freeze."""
        kind = self._dice.choice(kinds)
        victim = self.members.pop(self._dice.randrange(len(self.members)))
        if kind == "freeze":
            await victim.until_ready()
            await self._freeze(victim)
            self.members.append(victim)
            return
        if kind == "kill":
            victim.kill()
        else:
            await victim.until_ready()
            await victim.stop()
        self.members.append(self._start())

    async def _freeze(self, victim: Command) -> None:
        """Past its session, so that the others own its partitions."""
        await self.until_ready()
        before = self._assignments()
        victim.send_signal(signal.SIGSTOP)
        try:
            await eventually(lambda: self._assignments() > before, what="a rebalance")
        finally:
            victim.send_signal(signal.SIGCONT)

    def _assignments(self) -> int:
        return sum(member.output.count('"partitions assigned"') for member in self.members)

    async def stop(self) -> None:
        """Stop all members, in good order."""
        await self.until_ready()
        for member in self.members:
            await member.stop()


def settings_on(bootstrap: str, prefix: str) -> dict[str, str]:
    """The settings of processes on this Kafka, with topics, groups and keys of their own."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "TOPIC_PREFIX": prefix,
        "GROUP_PREFIX": f"{prefix}g.",
        "REDIS_PREFIX": prefix,
        "KAFKA_SESSION_TIMEOUT": "15",  # a machine that stands still makes no rebalance
        "LOG_FORMAT": "json",
    }
