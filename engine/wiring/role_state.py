"""Reports the states of a process's roles every few seconds. No other task waits for it."""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection

from redis.exceptions import RedisError

from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.role_states import RoleStateStore
from engine.wiring.role import Role
from engine.wiring.stores import Stores

_PAUSE_SECONDS = 5.0
_ROUNDS = 60  # after so many writes, reports of ended processes are removed


def role_state_store(settings: Settings, stores: Stores) -> RoleStateStore:
    """The store of the reports."""
    return RoleStateStore(
        redis=stores.redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout
    )


class RoleStateWriter:
    """Writes reports on `roles` while `run` runs. `failing` names failing server checks."""

    def __init__(
        self,
        *,
        store: RoleStateStore,
        roles: Collection[Role],
        failing: Callable[[], Collection[str]],
        metrics: Metrics,
        pause: float = _PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._roles = roles
        self._failing = failing
        self._errors = metrics.redis_errors
        self._pause = pause
        self._instance = secrets.token_hex(8)

    async def run(self) -> None:
        """Write until cancelled. While Redis is down nothing is written."""
        round_ = 0
        while True:
            try:
                for role in self._roles:
                    await self._store.write(
                        self._instance,
                        role.name,
                        behind=role.consumer.seconds_behind(time.time()),
                        waits_for=self._waits_for(role),
                    )
                if round_ % _ROUNDS == 0:
                    await self._store.forget_old()
            except (RedisError, OSError, TimeoutError):
                self._errors.inc()
            round_ += 1
            await asyncio.sleep(self._pause)

    def _waits_for(self, role: Role) -> list[str]:
        needed = {"kafka", "redis", *role.needs}
        failing_checks = [name for name, holds in role.checks.items() if not holds()]
        return [*(name for name in self._failing() if name in needed), *failing_checks]
