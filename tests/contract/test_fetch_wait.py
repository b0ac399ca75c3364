"""Partitions that have nothing do not hold up one that is full from time to time."""

from engine.process.settings_sources import load_settings
from tests.contract.members import RecordedValues, member, publish
from tests.contract.test_consumer import messages
from tests.servers.waiting import eventually

RECORDS = 3000


async def test_partitions_at_their_end_hold_up_no_other(broker: str, topic_prefix: str) -> None:
    """A full partition was paused; meanwhile the broker held a fetch of the other partitions, and
    the next fetch began after its answer."""
    topic = f"{topic_prefix}uneven"
    settings = load_settings(
        None,
        kafka_bootstrap_servers=broker,
        group_prefix=topic_prefix,
        batch_records=50,
        kafka_fetch_wait=15.0,
        drain_timeout=5.0,
    )
    await publish(settings, messages(topic, 0, RECORDS, key="one"))
    seen = RecordedValues()
    async with member(settings, topic, seen.handle):
        await eventually(lambda: len(seen.values) >= RECORDS, deadline=30)
