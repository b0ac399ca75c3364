"""The recorder's job with confluent-kafka and asyncpg: a trace row a detection, counters a device.

Traces are copied, counters upserted and offsets committed after the transaction: a crash between
the two counts a batch again.
"""

import asyncio
import os
from collections import Counter
from datetime import date, datetime

import asyncpg
import orjson
from confluent_kafka import Consumer, Message

from benchmarks.alternatives import job

_TABLES = """
CREATE TABLE IF NOT EXISTS device (
    udid text PRIMARY KEY, nb_beacon bigint DEFAULT 0, nb_campaign bigint DEFAULT 0
);
CREATE TABLE IF NOT EXISTS trace (
    udid text, uuid text, major int, minor int, proximity text, create_on timestamptz
);
CREATE TABLE IF NOT EXISTS statistic (
    day date, minor int, detections bigint, PRIMARY KEY (day, minor)
);
CREATE TABLE IF NOT EXISTS visitor (
    day date, minor int, udid text, PRIMARY KEY (day, minor, udid)
);
CREATE TABLE IF NOT EXISTS reception (id text PRIMARY KEY, udid text, campaign int);
"""
_DEVICES = """
INSERT INTO device AS d (udid, nb_beacon) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (udid) DO UPDATE SET nb_beacon = d.nb_beacon + excluded.nb_beacon
"""
_STATISTIC = """
INSERT INTO statistic AS s SELECT * FROM unnest($1::date[], $2::int[], $3::bigint[])
ON CONFLICT (day, minor) DO UPDATE SET detections = s.detections + excluded.detections
"""
_VISITORS = """
INSERT INTO visitor SELECT * FROM unnest($1::date[], $2::int[], $3::text[]) ON CONFLICT DO NOTHING
"""
_NEW = """
INSERT INTO reception SELECT * FROM unnest($1::text[], $2::text[], $3::int[])
ON CONFLICT DO NOTHING RETURNING udid
"""
_CAMPAIGNS = """
INSERT INTO device AS d (udid, nb_campaign) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (udid) DO UPDATE SET nb_campaign = d.nb_campaign + excluded.nb_campaign
"""


async def main() -> None:
    """Until it is ended."""
    database = await asyncpg.connect(os.environ["BENCH_DATABASE"])
    await database.execute(_TABLES)
    consumer = Consumer(
        {
            "bootstrap.servers": job.SERVERS,
            "group.id": f"{job.GROUP}recorder",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([job.DETECTIONS, job.NOTIFICATIONS])
    job.stop_on_sigterm()
    try:
        while True:
            if records := consumer.consume(job.BATCH, 0.1):
                await record(database, records)
                consumer.commit(asynchronous=False)
    finally:
        consumer.close()


async def record(database: asyncpg.Connection, records: list[Message]) -> None:
    """A batch, in one transaction."""
    async with database.transaction():
        await detections(database, [r for r in records if r.topic() == job.DETECTIONS])
        await notifications(database, [r for r in records if r.topic() == job.NOTIFICATIONS])


async def detections(database: asyncpg.Connection, records: list[Message]) -> None:
    """Traces, counters of devices, figures of the day with its distinct devices."""
    rows, devices, days = [], Counter[str](), Counter[tuple[date, int]]()
    visitors: set[tuple[date, int, str]] = set()
    for record in records:
        seen = orjson.loads(record.value() or b"")
        at = datetime.fromisoformat(seen["detected_at"])
        udid, major, minor = seen["device"]["udid"], seen["major"], seen["minor"]
        rows.append((udid, seen["uuid"], major, minor, seen["proximity"], at))
        devices[udid] += 1
        days[(at.date(), minor)] += 1
        visitors.add((at.date(), minor, udid))
    await database.copy_records_to_table("trace", records=rows)
    await database.execute(_DEVICES, list(devices), list(devices.values()))
    of_days, of_minors = [day for day, _ in days], [minor for _, minor in days]
    await database.execute(_STATISTIC, of_days, of_minors, list(days.values()))
    columns = zip(*visitors, strict=True) if visitors else ((), (), ())
    await database.execute(_VISITORS, *(list(column) for column in columns))


async def notifications(database: asyncpg.Connection, records: list[Message]) -> None:
    """Each id is counted once."""
    said = [orjson.loads(record.value() or b"") for record in records]
    ids, udids = [each["id"] for each in said], [each["device"]["udid"] for each in said]
    numbers = [each["campaign"]["id"] for each in said]
    new = await database.fetch(_NEW, ids, udids, numbers)
    counts = Counter(row["udid"] for row in new)
    await database.execute(_CAMPAIGNS, list(counts), list(counts.values()))


if __name__ == "__main__":
    asyncio.run(main())
