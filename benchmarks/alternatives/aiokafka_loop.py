"""The job as a competent user writes it without the product: aiokafka, a Redis pipeline a batch.

It may lose notifications where the process dies between the claim in Redis and the acknowledgement.
"""

import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from redis.asyncio import Redis

_SERVERS = os.environ["BENCH_KAFKA"]
_MAX_AGE = float(os.environ["BENCH_MAX_AGE"])
_LIFETIME = 300
_BATCH = 5000
_NEAR_ENOUGH = ("immediate", "near", "far")


def detections() -> AIOKafkaConsumer:
    """A consumer of the detections, which does not commit by itself."""
    return AIOKafkaConsumer(
        os.environ["BENCH_DETECTIONS"],
        bootstrap_servers=_SERVERS,
        group_id=os.environ["BENCH_GROUP"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


async def main() -> None:
    """Until all is done."""
    campaigns, watch = campaigns_by_beacon(), Stopwatch()
    redis, consumer = Redis.from_url(os.environ["BENCH_REDIS"]), detections()
    producer = AIOKafkaProducer(
        bootstrap_servers=_SERVERS, enable_idempotence=True, linger_ms=5, max_batch_size=500_000
    )
    await consumer.start()
    await producer.start()
    while watch.done < watch.wanted:
        fetched = await consumer.getmany(timeout_ms=100, max_records=_BATCH)
        records = [record for batch in fetched.values() for record in batch]
        if not records:
            continue
        asked, claims = [], redis.pipeline(transaction=False)
        for record in records:
            seen = orjson.loads(record.value)
            at = datetime.fromisoformat(seen["detected_at"]).timestamp()
            place = (seen["uuid"].lower(), int(seen["major"]), int(seen["minor"]))
            for campaign in campaigns.get(place, ()):
                recent = abs(time.time() - at) <= _MAX_AGE
                near = seen["proximity"] in _NEAR_ENOUGH
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
                value = orjson.dumps(_notification(id_, seen, campaign, at))
                sent.append(await producer.send(os.environ["BENCH_NOTIFICATIONS"], value, key))
        await asyncio.gather(*sent)
        await consumer.commit()
        watch.note(len(records), len(sent))
    await producer.stop()
    await consumer.stop()
    await redis.aclose()


def campaigns_by_beacon() -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    """The exported campaigns by uuid, major and minor."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for each in json.loads(Path(os.environ["BENCH_CATALOG"]).read_text(encoding="utf-8")):
        found.setdefault((each["uuid"], each["major"], each["minor"]), []).append(each)
    return found


def _notification(
    id_: str, detection: dict[str, Any], campaign: dict[str, Any], at: float
) -> dict[str, Any]:
    fields: dict[str, Any] = campaign["fields"]
    return fields | {
        "id": id_,
        "proximity": detection["proximity"],
        "device": detection["device"],
        "detected_at": _written(at),
        "triggered_at": _written(time.time()),
        "expires_at": _written(at + _LIFETIME),
    }


def _written(epoch: float) -> str:
    return datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")


class Stopwatch:
    """From the first tenth of the records to the last one; prints the result as a line of JSON."""

    def __init__(self) -> None:
        self.wanted = int(sys.argv[1])
        self.done = 0
        self._first = 0
        self._notifications = 0

    def note(self, records: int, notifications: int) -> None:
        """A batch is done: decided, published, acknowledged, committed."""
        self.done += records
        self._notifications += notifications
        if self.done >= self.wanted // 10 and not self._first:
            self._first = self.done
            self._begin, self._processor = time.perf_counter(), time.process_time()
        if self.done >= self.wanted:
            result = {
                "records": self.done - self._first,
                "seconds": time.perf_counter() - self._begin,
                "seconds_processor": time.process_time() - self._processor,
                "notifications": self._notifications,
            }
            print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())
