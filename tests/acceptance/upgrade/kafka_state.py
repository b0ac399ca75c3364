"""Every record of the topics and the groups' offsets, as lines of JSON; and back again."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.acceptance.topics import NAMES, TopicSet

PARTITIONS = 2
GROUPS = {"trigger": "detections", "connector": "connector-calls"}
Change = Callable[[str], str]


async def dump(bootstrap: str, prefix: str, group_prefix: str) -> str:
    """The state of the topics under `prefix`: a line a record, a line a committed offset."""
    topics = TopicSet(bootstrap, prefix, f"{group_prefix}trigger", PARTITIONS)
    lines: list[dict[str, Any]] = []
    for name in NAMES:
        seen = [0] * PARTITIONS
        for record in await topics.read(name):
            assert record.offset == seen[record.partition], "offsets have gaps"
            seen[record.partition] += 1
            lines.append(
                {
                    "topic": name,
                    "partition": record.partition,
                    "timestamp": record.timestamp,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[header, _text(value)] for header, value in record.headers],
                }
            )
    for role, name in GROUPS.items():
        group = TopicSet(bootstrap, prefix, group_prefix + role, PARTITIONS, source=name)
        for partition, offset in (await group.committed()).items():
            lines.append({"group": role, "topic": name, "partition": partition, "offset": offset})
    return "".join(json.dumps(line) + "\n" for line in lines)


async def load(
    text: str, bootstrap: str, prefix: str, group_prefix: str, *, later: float, change: Change
) -> None:
    """Make topics that hold the same under another prefix. `change` is made to all text; time
    stamps are `later` seconds."""
    topics = TopicSet(bootstrap, prefix, f"{group_prefix}trigger", PARTITIONS)
    await topics.create()
    lines = [json.loads(line) for line in text.splitlines()]
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
        sent = [
            await producer.send(
                prefix + line["topic"],
                _bytes(line["value"], change),
                key=_bytes(line["key"], str),
                partition=line["partition"],
                timestamp_ms=line["timestamp"] + int(later * 1000),
                headers=[(name, _bytes(value, change)) for name, value in line["headers"]],
            )
            for line in lines
            if "value" in line
        ]
        for future in sent:
            await future
    for group, offsets in _committed(lines, prefix):
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group_prefix + group, enable_auto_commit=False
        ) as consumer:
            consumer.assign(list(offsets))
            await consumer.commit(offsets)


def _committed(
    lines: list[dict[str, Any]], prefix: str
) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
    for group in GROUPS:
        yield (
            group,
            {
                TopicPartition(prefix + line["topic"], line["partition"]): line["offset"]
                for line in lines
                if line.get("group") == group
            },
        )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="surrogateescape")


def _bytes(text: str | None, change: Change) -> bytes | None:
    return None if text is None else change(text).encode(errors="surrogateescape")
