"""The least that the trigger must do, in one loop: decode, claim, compose, publish, commit.

It uses the product's libraries, decoder and claims, and has nothing else: no filter, rules,
fairness, bounds, metrics, feed, look-up of devices or retries. So it shows what these cost.
"""

import asyncio
import gc
import os
import time
from binascii import hexlify
from collections import defaultdict
from collections.abc import Iterable
from struct import Struct
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer, ConsumerRecord

from benchmarks.alternatives.aiokafka_loop import Stopwatch, campaigns_by_beacon, detections
from catalog.redis_connection import connect_redis
from engine.kafka.detections import DecodedDetection, decode_record
from engine.kafka.messages import format_instant
from engine.kafka.producer import key_hash
from engine.process.metrics import Metrics
from engine.redis.claims import NOT_COUNTED, Claims, DeviceRequests, pack_request
from engine.trigger.grants import at_place, notification_ids
from rules.model import Zone

_BATCH = 600  # one batch of messages for each partition must be small enough for the brokers
_LIFETIME = 300
_EXPONENT = 2.0
_encode = msgspec.json.Encoder().encode
_uuid_parts = Struct("8s4s4s4s12s").unpack
_ZONES = {zone: b'"proximity":"%b",' % zone.name.lower().encode() for zone in Zone}


class _Campaign:
    """What is made once of a campaign."""

    def __init__(self, exported: dict[str, Any]) -> None:
        fields = dict(exported["fields"])
        reference = fields.pop("campaign")
        self.id: int = reference["id"]
        self.delay = exported["delay"] * 1000
        self.reference = b'","campaign":%b,' % _encode(reference)
        self.content = _encode(fields)[1:]
        self.header = ("campaign", b"%d" % self.id)


_Asked = tuple[DecodedDetection, list[_Campaign], list[bytes]]


async def main() -> None:
    """Until all is done."""
    watch, topic = Stopwatch(), os.environ["BENCH_NOTIFICATIONS"]
    campaigns = {key: [*map(_Campaign, found)] for key, found in campaigns_by_beacon().items()}
    redis = connect_redis(os.environ["BENCH_REDIS"])
    claims = Claims(redis=redis, prefix="", retain=600.0, deadline=5.0, metrics=Metrics())
    consumer = detections()
    producer = AIOKafkaProducer(
        bootstrap_servers=os.environ["BENCH_KAFKA"],
        enable_idempotence=True,
        max_batch_size=1_000_000,
    )
    await consumer.start()
    await producer.start()
    partitions = len(await producer.partitions_for(topic))
    sending: asyncio.Future[Any] = asyncio.ensure_future(asyncio.sleep(0))
    while watch.done < watch.wanted:
        fetched = await consumer.getmany(timeout_ms=100, max_records=_BATCH)
        records = [record for batch in fetched.values() for record in batch]
        if not records:
            continue
        asked, requests = _requests(records, campaigns)
        now = time.time()
        answers = await claims.take(requests, now)
        builders = defaultdict[int, Any](producer.create_batch)
        sent = _compose(asked, answers.forbidden_by, now, builders, partitions)
        await sending  # the last batch, which went out meanwhile
        offsets = {partition: batch[-1].offset + 1 for partition, batch in fetched.items() if batch}
        sending = asyncio.ensure_future(_send(producer, consumer, topic, builders, offsets))
        watch.note(len(records), sent)
    await sending
    await producer.stop()
    await consumer.stop()
    await redis.aclose()


def _requests(
    records: list[ConsumerRecord[bytes, bytes]], campaigns: dict[Any, list[_Campaign]]
) -> tuple[list[_Asked], list[DeviceRequests]]:
    """The detections with the ids of their messages, and the claims to take."""
    asked, requests = list[_Asked](), list[DeviceRequests]()
    for record in records:
        detection = decode_record(record, _EXPONENT)
        fired, at = campaigns[detection.key], round(detection.detected_at * 1000)
        # It asks for the ids of the campaigns alone.
        ids = notification_ids(at_place(detection, None), fired)  # type: ignore[arg-type]
        packed = b"".join(
            pack_request(campaign.id, id_, at, campaign.delay, NOT_COUNTED)
            for campaign, id_ in zip(fired, ids, strict=True)
        )
        asked.append((detection, fired, ids))
        requests.append(DeviceRequests(detection.message.device.udid, packed))
    return asked, requests


def _compose(
    asked: list[_Asked], forbidden: Iterable[Any], now: float, builders: Any, partitions: int
) -> int:
    """Write the messages of the granted claims into batches by partition. How many there are."""
    sent, at_ms = 0, round(now * 1000)
    triggered = format_instant(now).encode()
    for (detection, campaigns, ids), denied in zip(asked, forbidden, strict=True):
        udid = detection.message.device.udid.encode()
        builder = builders[key_hash(udid) % partitions]
        at = detection.detected_at
        times = (format_instant(at).encode(), triggered, format_instant(at + _LIFETIME).encode())
        when = b'"detected_at":"%b","triggered_at":"%b","expires_at":"%b",' % times
        place = b'%b"device":%b,' % (_ZONES[detection.zone], _encode(detection.message.device))
        for campaign, id_, by in zip(campaigns, ids, denied, strict=True):
            if not by:
                text = b"-".join(_uuid_parts(hexlify(id_)))
                parts = (b'{"id":"', text, campaign.reference, place, when, campaign.content)
                headers = [("id", text), campaign.header]
                builder.append(timestamp=at_ms, key=udid, value=b"".join(parts), headers=headers)
                sent += 1
    return sent


async def _send(
    producer: AIOKafkaProducer, consumer: Any, topic: str, builders: Any, offsets: Any
) -> None:
    sends = [
        await producer.send_batch(builder, topic, partition=partition)
        for partition, builder in builders.items()
    ]
    await asyncio.gather(*sends)
    await consumer.commit(offsets)


if __name__ == "__main__":
    gc.set_threshold(50_000, 100, 100)
    asyncio.run(main())
