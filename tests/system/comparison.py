"""Compares the published messages with those that the oracle expects."""

import json
from collections import Counter
from datetime import datetime
from typing import Any

from tests.system.oracle import Expected
from tests.system.topics import Record, TopicSet


def messages_by_id(records: list[Record]) -> dict[str, list[dict[str, Any]]]:
    """The bodies of messages by id, repeats included; keys and headers are checked."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        body = json.loads(record.value or b"")
        assert record.key == body["device"]["udid"].encode()
        assert dict(record.headers) == {
            "id": body["id"].encode(),
            "campaign": str(body["campaign"]["id"]).encode(),
        }
        found.setdefault(body["id"], []).append(body)
    return found


def assert_equal(
    expected: dict[str, dict[str, Any]], records: list[Record], *, repeats: bool
) -> None:
    """The same ids, and the same fields under each; with `repeats`, each at least once."""
    found = messages_by_id(records)
    missing, surplus = expected.keys() - found.keys(), found.keys() - expected.keys()
    assert not missing, f"{len(missing)} are missing, such as {expected[next(iter(missing))]}"
    assert not surplus, f"{len(surplus)} too many, such as {found[next(iter(surplus))]}"
    for number, bodies in found.items():
        assert repeats or len(bodies) == 1, f"{number} came {len(bodies)} times"
        for body in bodies:
            datetime.strptime(body.pop("triggered_at"), "%Y-%m-%dT%H:%M:%S%z")
            assert body == expected[number]


async def assert_dead_letters(expected: Expected, topics: TopicSet) -> None:
    """Each malformed record once, byte for byte, with its headers; nothing else."""
    letters = await topics.read("dead-letters")
    found: Counter[tuple[int, int]] = Counter()
    for letter in letters:
        headers = {name: value.decode() for name, value in letter.headers}
        place = int(headers["partition"]), int(headers["offset"])
        found[place] += 1
        original, reason = expected.dead[place]
        assert (letter.key, letter.value) == (original.key, original.value)
        assert (headers["topic"], headers["reason"]) == (original.topic, reason), headers
        assert headers["detail"]
        datetime.strptime(headers["failed_at"], "%Y-%m-%dT%H:%M:%S%z")
        assert set(headers) == {"reason", "detail", "topic", "partition", "offset", "failed_at"}
    assert found == dict.fromkeys(expected.dead, 1)
