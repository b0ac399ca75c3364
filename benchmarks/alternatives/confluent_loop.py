"""The job with confluent-kafka and a Redis pipeline a batch."""

import time
from datetime import datetime

import orjson
from confluent_kafka import Consumer, Producer
from redis import Redis

from benchmarks.alternatives import job


def main() -> None:
    """Until all is done."""
    campaigns, watch, redis = job.campaigns_by_beacon(), job.Stopwatch(), Redis.from_url(job.REDIS)
    servers = {"bootstrap.servers": job.SERVERS}
    options = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "group.id": job.GROUP}
    consumer = Consumer(servers | options)
    producer = Producer(servers | {"partitioner": "murmur2_random", "enable.idempotence": True})
    job.stop_on_sigterm()
    try:
        consumer.subscribe([job.DETECTIONS])
        while watch.done < watch.wanted:
            handle(consumer, producer, redis, campaigns, watch)
    finally:
        consumer.close()


def handle(
    consumer: Consumer,
    producer: Producer,
    redis: Redis,
    campaigns: job.Campaigns,
    watch: job.Stopwatch,
) -> None:
    """A batch: decided, claimed, published, acknowledged, committed."""
    records = consumer.consume(job.BATCH, 0.1)
    if not records:
        return
    asked, claims = [], redis.pipeline(transaction=False)
    for record in records:
        seen = orjson.loads(record.value() or b"")
        at = datetime.fromisoformat(seen["detected_at"]).timestamp()
        place = (seen["uuid"].lower(), int(seen["major"]), int(seen["minor"]))
        for campaign in campaigns.get(place, ()):
            recent = abs(time.time() - at) <= job.MAX_AGE
            near = seen["proximity"] in job.NEAR_ENOUGH
            if recent and near and campaign["start"] <= at <= campaign["end"]:
                number = campaign["fields"]["campaign"]["id"]
                claim = f"claim:{number}:{seen['device']['udid']}"
                claims.set(claim, 1, nx=True, ex=campaign["delay"])
                id_ = f"{record.partition()}-{record.offset()}-{number}"
                asked.append((id_, record.key(), seen, campaign, at))
    sent = 0
    for (id_, key, seen, campaign, at), granted in zip(asked, claims.execute(), strict=True):
        if granted:
            value = orjson.dumps(job.notification(id_, seen, campaign, at))
            producer.produce(job.NOTIFICATIONS, value, key)
            sent += 1
    producer.flush()
    consumer.commit(asynchronous=False)
    watch.note(len(records), sent)


if __name__ == "__main__":
    main()
