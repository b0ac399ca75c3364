"""Disturbances without crashes: every figure is exact in the end.

Statements are cancelled at random, PostgreSQL times them out, every second recorder's clock is 32
days ahead, and the topics grow while records pour in; besides, recorders are killed, frozen and
moved about as in the other tests of exactness. With PROXIMITY_TEST_FULL=1 at ten times the size.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from sqlalchemy import make_url, text

from catalog.database import open_database
from tests.acceptance.recorder.crew import Crew
from tests.acceptance.recorder.test_exact import SEED, SETTINGS, Scene, Size
from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.hostile.recorder.wrong_clock import HalfWrongRig
from tests.servers.postgres import execute

FULL = "PROXIMITY_TEST_FULL" in os.environ
SIZE = Size(400_000, 20_000, 4000, 8000, 12) if FULL else Size(20_000, 2000, 400, 800, 3)
AHEAD = 32 * 86_400
LONGEST_PAUSE = 0.05
_CANCEL = text(
    "SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM (SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' "
    "AND application_name = 'proximity' ORDER BY random() LIMIT 1) AS one"
)


class Faults:
    """The disturbances of PostgreSQL and Kafka during a round."""

    def __init__(self, url: str, bootstrap: str, topics: TopicSet) -> None:
        self._url = url
        self._bootstrap = bootstrap
        self._topics = topics
        self._dice = random.Random(SEED)
        self.cancelled = 0

    async def statements_are_cancelled(self, crew: Crew) -> AsyncIterator[None]:
        """Many times a second one that runs, for as long as records of the round come, while the
        first of them are recorded, and until a recorder has met it."""
        task = asyncio.create_task(self._cancel())
        yield
        await crew.until_progress(1)
        await crew.until_said("due to user request")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def statements_time_out(self, _crew: Crew) -> AsyncIterator[None]:
        """New sessions have a statement_timeout that is too short for larger batches."""
        await asyncio.to_thread(self._limit_statements, "SET statement_timeout = '5ms'")
        yield
        await asyncio.sleep(2)  # while nothing, or little, is recorded
        await asyncio.to_thread(self._limit_statements, "RESET statement_timeout")

    async def topics_grow(self, crew: Crew) -> AsyncIterator[None]:
        """Add half as many partitions, so keys move to other partitions during the round."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        names = ("detections", "notifications", "authentications")
        try:
            await admin.create_partitions(
                {self._topics.name(name): NewPartitions(total_count=9) for name in names}
            )
        finally:
            await admin.close()
        yield
        await crew.renew()  # new members get the partitions at once

    async def _cancel(self) -> None:
        database = open_database(self._url)
        try:
            async with database.autocommit() as session:
                while True:
                    self.cancelled += await session.scalar(_CANCEL) or 0
                    await asyncio.sleep(self._dice.random() * LONGEST_PAUSE)
        finally:
            await database.close()

    def _limit_statements(self, setting: str) -> None:
        """Run a statement from another database, whose sessions have no limit."""
        name = make_url(self._url).database
        other = make_url(self._url).set(database="postgres")
        for statement in (
            f'ALTER DATABASE "{name}" {setting}',
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        ):
            execute(other.render_as_string(hide_password=False), statement)


@pytest.mark.timeout(2400 if FULL else 300)
async def test_every_figure_is_exact(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    postgres_url: str,
    tmp_path: Path,
) -> None:
    faults = Faults(postgres_url, kafka_bootstrap, topics)
    rig.environment |= {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    wrong = HalfWrongRig(rig, tmp_path, AHEAD)
    kinds: tuple[Callable[[Crew], AsyncIterator[None]], ...] = (
        faults.statements_are_cancelled,
        faults.topics_grow,
        faults.statements_time_out,
    )
    plan = {n: kinds[n % 3] for n in range(SIZE.rounds) if n % 3 != 1 or n == 1}
    database = open_database(postgres_url)
    try:
        scene = Scene(wrong, topics, kafka_bootstrap, database, SIZE)
        await scene.play(postgres_url, 2, outages=plan)
    finally:
        wrong.close()
        await database.close()
    print(f"{faults.cancelled} statements cancelled")
    assert faults.cancelled > 0
    for fault in ("due to user request", "due to statement timeout", "nothing old is deleted"):
        assert fault in wrong.output, fault
