"""How far the recorder has come, as SQL says it."""

from collections.abc import Collection

from aiokafka import TopicPartition
from sqlalchemy import func, select

from catalog.database import Database
from catalog.models import Device, RecorderOffset


async def recorded(
    database: Database, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The first record of each of `partitions` that SQL has not counted. Raises SQLAlchemyError."""
    of = RecorderOffset
    async with database.read() as session:
        rows = await session.execute(select(of.topic, of.partition, of.next_offset))
        found = {TopicPartition(topic, number): at for topic, number, at in rows}
    return {partition: found.get(partition, 0) for partition in partitions}


async def counted(database: Database) -> tuple[int, int]:
    """Detections of active beacons and notifications of all devices. Raises SQLAlchemyError."""
    sums = select(func.sum(Device.nb_beacon), func.sum(Device.nb_campaign))
    async with database.read() as session:
        detections, notifications = (await session.execute(sums)).one()
    return int(detections or 0), int(notifications or 0)
