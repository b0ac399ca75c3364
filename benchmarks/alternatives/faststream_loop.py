"""The job with FastStream: a subscriber of batches, with a Redis pipeline."""

import asyncio
import time
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker, KafkaMessage
from redis.asyncio import Redis

from benchmarks.alternatives import job


async def main() -> None:
    """Until all is done."""
    campaigns, watch, redis = job.campaigns_by_beacon(), job.Stopwatch(), Redis.from_url(job.REDIS)
    broker = KafkaBroker(job.SERVERS, logger=None, config={"partitioner": "murmur2_random"})
    app = FastStream(broker, logger=None)

    async def handle(_body: Any, message: KafkaMessage) -> None:
        records = message.raw_message
        now, asked, claims = time.time(), [], redis.pipeline(transaction=False)
        for each in records:
            origin = (each.partition(), each.offset())
            for wanted in job.wanted(campaigns, origin, each.key(), each.value(), now):
                claims.set(wanted.claim, 1, nx=True, ex=wanted.delay)
                asked.append(wanted)
        answers = await claims.execute()
        sent = [wanted for wanted, answer in zip(asked, answers, strict=True) if answer]
        await asyncio.gather(
            *(
                broker.publish(wanted.notification(), job.NOTIFICATIONS, key=wanted.key)
                for wanted in sent
            )
        )
        await message.ack()
        watch.note(len(records), len(sent))
        if watch.done >= watch.wanted:
            app.exit()

    broker.subscriber(
        job.DETECTIONS,
        batch=True,
        max_records=job.BATCH,
        group_id=job.GROUP,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
        decoder=_as_it_is,
    )(handle)
    await app.run()


async def _as_it_is(_message: Any) -> None:
    """The handler decodes what it needs."""


if __name__ == "__main__":
    asyncio.run(main())
