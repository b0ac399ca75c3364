"""Bad records while SQL is away: the limit on dead letters counts records, not retries."""

from collections.abc import AsyncIterator, Collection
from typing import Any
from uuid import uuid4

import pytest

from engine.kafka.dead_letters import DeadLetterLimit, TooManyDeadLettersError
from engine.metrics import Metrics
from engine.recording.asides import Asides
from engine.recording.authentications import AuthenticationReader
from engine.recording.notifications import NotificationReader
from tests.contract.ledgers import open_scene
from tests.integration.recorder.test_recorder import (
    AUTHENTICATIONS,
    NOTIFICATIONS,
    RULE,
    Letters,
    Rig,
    record,
)

LIMIT = 60


@pytest.fixture
async def rig(sqlite_url: str) -> AsyncIterator[Rig]:
    async with open_scene(sqlite_url) as scene:
        yield Rig(scene)


class AwayAtFirst:
    """A ledger that does not answer so many times."""

    def __init__(self, ledger: Any, times: int) -> None:
        self._ledger = ledger
        self._times = times

    async def companies(self, ids: Collection[int]) -> set[int]:
        return set(await self._after_the_outage("companies", ids))

    async def applications(self, keys: Collection[str]) -> Any:
        return await self._after_the_outage("applications", keys)

    async def _after_the_outage(self, name: str, argument: Any) -> Any:
        if self._times:
            self._times -= 1
            raise ConnectionResetError
        return await getattr(self._ledger, name)(argument)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def reader(topic: str, ledger: Any, letters: Letters) -> Any:
    asides = Asides(topic="dead", publisher=letters, metrics=Metrics())  # type: ignore[arg-type]
    limit = DeadLetterLimit(share=1, run=LIMIT)
    if topic == AUTHENTICATIONS:
        return AuthenticationReader(ledger=ledger, asides=asides, limit=limit)
    return NotificationReader(
        ledger=ledger,
        asides=asides,
        limit=limit,
        skipped=Metrics().recorder_skipped,
        rule=RULE,
    )


@pytest.mark.parametrize("topic", [NOTIFICATIONS, AUTHENTICATIONS])
async def test_retries_of_a_batch_count_its_bad_records_once(rig: Rig, topic: str) -> None:
    letters = Letters()
    reading = reader(topic, AwayAtFirst(rig.scene.ledger, 5), letters)
    bad = [record(topic, offset, b"no json") for offset in range(50)]
    for _ in range(5):
        with pytest.raises(ConnectionResetError):
            await reading.read(bad)
    await reading.read(bad)
    assert len(letters.reasons) == 50
    with pytest.raises(TooManyDeadLettersError):  # those that come next do count
        await reading.read([record(topic, offset, b"no json") for offset in range(50, 60)])


async def test_what_is_left_of_a_batch_counts_once(rig: Rig) -> None:
    """Another recorder has written a part of it: the rest is read again, with what comes behind."""
    letters = Letters()
    reading = reader(NOTIFICATIONS, rig.scene.ledger, letters)
    good = rig.notification(40, str(uuid4()))
    bad = [record(NOTIFICATIONS, offset, b"no json") for offset in range(40)]
    await reading.read([*bad, good])
    await reading.read([*bad[30:], good])
    await reading.read([record(NOTIFICATIONS, offset, b"no json") for offset in range(41, 41 + 59)])
    with pytest.raises(TooManyDeadLettersError):
        await reading.read([record(NOTIFICATIONS, 100, b"no json")])
