"""20,000 detections of every kind through real Kafka and Redis, against the oracle; and
through a replay."""

import csv
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from rules.model import Reason
from tests.servers.proximity import Rig
from tests.system.oracle import Expected, Oracle
from tests.system.scene import assert_dead_letters, assert_equal
from tests.system.topics import Message, TopicSet
from tests.system.traffic import Traffic
from tests.system.world import large_world

COUNT = 20_000
SEED = 20261120
# Seconds from the beginning. None comes near a bound of age, however long the run takes.
FRESH = (-120.0, 60.0)
STALE = (-7200.0, -3400.0)
FUTURE = (5000.0, 7200.0)
MAX_AGE = 3000.0


def detections(traffic: Traffic, dice: random.Random, begin: float) -> Iterator[Message]:
    """Mostly fresh detections in order of time, with some disorder."""
    first, last = FRESH
    for number in range(COUNT):
        what = dice.random()
        t = begin + first + (last - first) * number / COUNT + dice.uniform(-4, 4)
        if what < 0.02:
            t = begin + dice.uniform(*STALE)
        elif what < 0.04:
            t = begin + dice.uniform(*FUTURE)
        elif what < 0.07:
            yield traffic.unknown(None)
            continue
        elif what < 0.08:
            yield traffic.malformed()
            continue
        ms = int(t * 1000) if dice.random() < 0.3 else int(t) * 1000
        yield traffic.detection(None if 0.1 < what < 0.25 else ms)


async def test_the_output_equals_the_oracles(stores: Rig, topics: TopicSet, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    world = large_world(dice)
    await world.save(stores.settings["DATABASE_URL"])
    await topics.create()
    begin = time.time()
    traffic = Traffic(dice, world, devices=400)
    messages = list(detections(traffic, dice, begin))
    await topics.publish(messages[: COUNT // 2])
    stores.settings["MAX_DETECTION_AGE"] = str(MAX_AGE)
    trigger = stores.role("trigger")
    await topics.publish(messages[COUNT // 2 :])
    await topics.until_done()
    samples = await trigger.metrics()
    await trigger.stop()
    sends = tmp_path / "sends.csv"
    replay = stores.start("replay", "--sends", str(sends))
    assert await replay.ended() == 0, replay.output

    oracle = Oracle(world, traffic.cases, begin, MAX_AGE)
    expected = oracle.walk(await topics.read("detections"))
    assert_interesting(expected)
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=False)
    assert_equal(expected.connector_calls, await topics.read("connector-calls"), repeats=False)
    await assert_dead_letters(expected, topics, repeats=False)
    with sends.open(encoding="utf-8", newline="") as stream:
        replayed = sorted(row["id"] for row in csv.DictReader(stream))
    assert replayed == sorted([*expected.notifications, *expected.connector_calls])
    assert one_refusal(samples.by("detections", "reason")) == one_refusal(expected.detections)
    assert one_refusal(samples.by("decisions", "reason")) == one_refusal(expected.decisions)
    assert samples.by("notifications", "format") == expected.formats
    assert samples.total("connector_handovers") == len(expected.connector_calls)
    reasons = Counter(reason for _, reason in expected.dead.values())
    assert samples.by("dead_letters", "reason") == reasons
    assert samples.by("records_skipped", "cause").get("geofence_exit") == expected.exits > 0


def one_refusal(reasons: Mapping[str, float]) -> dict[str, float]:
    """Throttled and capped as one: which of them a process names depends on what it remembers."""
    held = sum(reasons.get(each, 0) for each in ("throttled", "capped"))
    return {**{each: reasons[each] for each in reasons if each != "throttled"}, "capped": held}


def assert_interesting(expected: Expected) -> None:
    """Every kind of outcome must occur in the run."""
    assert set(expected.detections) == set(Reason) - {Reason.NOT_ENTERED}
    assert set(expected.decisions) == set(expected.detections)
    assert min(expected.decisions[each] for each in ("capped", "quiet_hours")) > COUNT / 100
    kinds = ("beacon", "geofence", "nfc", "qrcode")
    for messages in (expected.notifications, expected.connector_calls):
        counts = Counter(kind for each in messages.values() for kind in kinds if kind in each)
        assert min(counts[kind] for kind in kinds) > 10, counts
    assert set(expected.formats) == {"template", "url", "html"}
    assert len(expected.notifications) > COUNT / 10
    assert len(expected.connector_calls) > COUNT / 100
    assert len(expected.dead) > COUNT / 200
