"""Restores the recorded state of an earlier version in a test's servers, as if it had run today."""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property

from tests.acceptance.rig import Rig
from tests.acceptance.upgrade import kafka_state, redis_state, sql_state
from tests.acceptance.upgrade.record import REDIS, TOPICS
from tests.acceptance.upgrade.release import Release
from tests.acceptance.upgrade.scene import SECRET_KEY, SERVICE_PORT

_DAY = re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?![\d-])")
_WEEK = str(7 * 86_400)


class Before:
    """The state that a release left, whose customer's service is at `port` now.

    Days are moved, and no times of day: figures are kept by the day. So what waits may be nearly a
    day old.
    """

    def __init__(self, release: Release, *, port: int) -> None:
        self._folder = release.folder
        self._service = f"127.0.0.1:{port}"

    @cached_property
    def _kafka(self) -> str:
        return (self._folder / "kafka.jsonl").read_text()

    @cached_property
    def _later(self) -> timedelta:
        """Whole days from the last record until now."""
        stamps = [json.loads(line).get("timestamp", 0) for line in self._kafka.splitlines()]
        then = datetime.fromtimestamp(max(stamps) / 1000, UTC)
        return timedelta(days=(datetime.now(UTC) - then).days)

    async def put(self, servers: Mapping[str, str], prefix: str, groups: str) -> None:
        """Fill Kafka, Redis and an empty database."""
        redis = (self._folder / "redis.jsonl").read_text()
        redis_state.load(self._at_service(redis), servers["REDIS_URL"])
        sql = (self._folder / "postgresql.sql").read_text().replace(f"'{TOPICS}", f"'{prefix}")
        await asyncio.to_thread(sql_state.load, self._changed(sql), servers["DATABASE_URL"])
        await kafka_state.load(
            self._kafka,
            servers["KAFKA_BOOTSTRAP_SERVERS"],
            prefix,
            groups,
            later=self._later.total_seconds(),
            change=lambda text: self._changed(text).replace(TOPICS, prefix),
        )

    def _changed(self, text: str) -> str:
        return _DAY.sub(self._moved, self._at_service(text))

    def _at_service(self, text: str) -> str:
        return text.replace(f"127.0.0.1:{SERVICE_PORT}", self._service)

    def _moved(self, day: "re.Match[str]") -> str:
        return (datetime.fromisoformat(day[0]) + self._later).date().isoformat()


def continuing(rig: Rig, servers: Mapping[str, str]) -> None:
    """Settings with which this version continues from the state of the earlier one."""
    rig.environment |= {
        **servers,
        "REDIS_PREFIX": REDIS,
        "SECRET_KEY": SECRET_KEY,
        "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
        "MAX_DETECTION_AGE": _WEEK,
    }
