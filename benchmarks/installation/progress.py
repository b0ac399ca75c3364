"""The progress of each role, from outside: offsets on the brokers, and the recorder's in SQL."""

import asyncio

from confluent_kafka import Consumer, KafkaException, TopicPartition
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from benchmarks.installation.stream import QUIET
from catalog.database import open_database
from engine.kafka.topics import Topics

_SECONDS = 5.0
ROLES = ("trigger", "connector", "recorder")


class RoleProgress:
    """`lags` of the three roles in records; None if the servers do not report it."""

    def __init__(
        self, kafka: str, database_url: str, topics: Topics, groups: str, partitions: int
    ) -> None:
        self._topics = topics
        self._partitions = range(partitions)
        self._consumers = {
            role: Consumer(
                {"bootstrap.servers": kafka, "group.id": f"{groups}{role}", "log_level": QUIET}
            )
            for role in ("trigger", "connector")
        }
        self._database = open_database(database_url, command_timeout=_SECONDS)

    async def close(self) -> None:
        """Disconnect."""
        for consumer in self._consumers.values():
            consumer.close()
        await self._database.close()

    async def lags(self) -> dict[str, int | None]:
        """The lag of each role."""
        trigger, connector, recorder = await asyncio.gather(
            asyncio.to_thread(self._group_lag, "trigger", self._topics.detections),
            asyncio.to_thread(self._group_lag, "connector", self._topics.connector_calls),
            self._recorder_lag(),
        )
        return {"trigger": trigger, "connector": connector, "recorder": recorder}

    def _group_lag(self, role: str, topic: str) -> int | None:
        consumer = self._consumers[role]
        places = [TopicPartition(topic, number) for number in self._partitions]
        try:
            committed = consumer.committed(places, _SECONDS)
            ends = [consumer.get_watermark_offsets(place, _SECONDS)[1] for place in places]
        except KafkaException:
            return None
        return sum(ends) - sum(max(0, each.offset) for each in committed)

    async def _recorder_lag(self) -> int | None:
        topics = (self._topics.detections, self._topics.notifications, self._topics.authentications)
        try:
            async with asyncio.timeout(_SECONDS), self._database.read() as session:
                done = await session.scalar(text("SELECT sum(next_offset) FROM recorder_offset"))
            # (Afterwards: a role that comes further meanwhile is not ahead of the brokers.)
            ends = await asyncio.to_thread(self._ends, topics)
        except (KafkaException, SQLAlchemyError, OSError, TimeoutError):
            return None
        return ends - int(done or 0)

    def _ends(self, topics: tuple[str, ...]) -> int:
        consumer = self._consumers["trigger"]
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, number), _SECONDS)[1]
            for topic in topics
            for number in self._partitions
        )
