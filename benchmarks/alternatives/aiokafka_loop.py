"""The job with aiokafka and a Redis pipeline a batch."""

import asyncio
import time
from datetime import datetime

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from redis.asyncio import Redis

from benchmarks.alternatives import job


async def main() -> None:
    """Until all is done."""
    campaigns, watch, redis = job.campaigns_by_beacon(), job.Stopwatch(), Redis.from_url(job.REDIS)
    consumer = AIOKafkaConsumer(
        job.DETECTIONS,
        bootstrap_servers=job.SERVERS,
        group_id=job.GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=job.SERVERS, enable_idempotence=True, linger_ms=5, max_batch_size=500_000
    )
    await consumer.start()
    await producer.start()
    while watch.done < watch.wanted:
        fetched = await consumer.getmany(timeout_ms=100, max_records=job.BATCH)
        records = [record for batch in fetched.values() for record in batch]
        if not records:
            continue
        asked, claims = [], redis.pipeline(transaction=False)
        for record in records:
            seen = orjson.loads(record.value)
            at = datetime.fromisoformat(seen["detected_at"]).timestamp()
            place = (seen["uuid"].lower(), int(seen["major"]), int(seen["minor"]))
            for campaign in campaigns.get(place, ()):
                recent = abs(time.time() - at) <= job.MAX_AGE
                near = seen["proximity"] in job.NEAR_ENOUGH
                if recent and near and campaign["start"] <= at <= campaign["end"]:
                    number = campaign["fields"]["campaign"]["id"]
                    claim = f"claim:{number}:{seen['device']['udid']}"
                    claims.set(claim, 1, nx=True, ex=campaign["delay"])
                    id_ = f"{record.partition}-{record.offset}-{number}"
                    asked.append((id_, record.key, seen, campaign, at))
        sent = []
        answers = await claims.execute()
        for (id_, key, seen, campaign, at), granted in zip(asked, answers, strict=True):
            if granted:
                value = orjson.dumps(job.notification(id_, seen, campaign, at))
                sent.append(await producer.send(job.NOTIFICATIONS, value, key))
        await asyncio.gather(*sent)
        await consumer.commit()
        watch.note(len(records), len(sent))
    await producer.stop()
    await consumer.stop()
    await redis.aclose()


if __name__ == "__main__":
    asyncio.run(main())
