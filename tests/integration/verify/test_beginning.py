"""A topic whose first records were deleted, on a real broker."""

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from sqlalchemy import text

from catalog.database import Database
from tests.integration.commands.proximity import Proximity
from tests.integration.verify.test_verify import on_one_database, record


@pytest.fixture
def bootstrap(kafka_bootstrap: str) -> str:
    return kafka_bootstrap


@on_one_database
@pytest.mark.parametrize(("counted", "status"), [(3, 0), (0, 1)])
async def test_sql_can_only_be_seen_to_have_too_little(
    proximity: Proximity, database: Database, counted: int, status: int
) -> None:
    topic = f"{proximity.topic_prefix}detections"
    admin = AIOKafkaAdminClient(bootstrap_servers=proximity.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
        await record(proximity, database, "a", "a", "a")
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)})
    finally:
        await admin.close()
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE device SET nb_beacon = :n"), {"n": counted})
    done = proximity("verify")
    assert done.returncode == status, done.stdout + done.stderr
    assert f"{topic}/0 begins at 2: what was before is gone" in done.stderr
