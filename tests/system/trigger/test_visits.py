"""Visits under kills and rebalances: no event is lost, added or out of order, beside a brute force
that looks at each device's whole history."""

import asyncio
import json
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tests.servers.waiting import eventually
from tests.system.rig import Rig
from tests.system.topics import Record, TopicSet
from tests.system.traffic import Message
from tests.system.world import World

SILENCE = 5  # seconds
HARMS = 10  # eight are kills
DEVICES = 80
PACE = 0.5  # seconds from one detection of a device to its next one, in a visit
SECONDS = 45
MOST_SECONDS = 4.0  # beside other work; 2 on a quiet machine
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5"}

Seen = tuple[float, int]  # when, and the number of the beacon


def made() -> World:
    """Three beacons of a venue whose company asks for presence, with campaigns for all moments."""
    world = World(datetime.now(UTC))
    company = world.company("visited", presence=True, visit_silence=SILENCE)
    venue = world.venue(company, "Hall")
    beacons = [world.beacon(venue, minor) for minor in range(3)]
    for on in ("enter", "exit"):
        world.campaign(venue, on, beacons, on=on)
    return world


class Walkers:
    """Devices that come and go; `seen` has what was published, `late` the devices of the past."""

    def __init__(self, world: World) -> None:
        self._triples = [beacon.triple for beacon in world.beacons]
        self._dice = random.Random(5)
        self.seen: dict[str, list[Seen]] = defaultdict(list)
        self._until = [0.0] * DEVICES  # of the visit, or below 0 of the absence
        self._beacon = [0] * DEVICES

    def step(self, now: float) -> Iterator[Message]:
        """The detections of this moment, and one that is too old for a visit."""
        for number in range(DEVICES):
            if abs(self._until[number]) < now:
                arrives = self._until[number] <= 0
                length = self._dice.uniform(2, 8) if arrives else -self._dice.uniform(9, 16)
                self._until[number] = (now + abs(length)) * (1 if arrives else -1)
                self._beacon[number] = self._dice.randrange(3)
            if self._until[number] > 0:
                self.seen[f"walker-{number}"].append((now, self._beacon[number]))
                yield self._message(f"walker-{number}", now, self._beacon[number])
        yield self._message(f"late-{self._dice.randrange(50)}", now - 60, 0)

    def _message(self, udid: str, at: float, beacon: int) -> Message:
        uuid, major, minor = self._triples[beacon]
        body = {"uuid": uuid, "major": major, "minor": minor, "proximity": "near"}
        body |= {"device": {"udid": udid}, "detected_at": round(at * 1000)}
        return Message(0, udid.encode(), json.dumps(body).encode())


def visits(seen: list[Seen]) -> list[tuple[int, int, int]]:
    """Entry, last detection (whole seconds) and detections of each visit of one place."""
    found: list[list[float]] = []
    for at, _ in seen:
        if not found or at - found[-1][-1] > SILENCE:
            found.append([])
        found[-1].append(at)
    return [(int(each[0]), int(each[-1]), len(each)) for each in found]


def expected(walkers: Walkers) -> dict[tuple[str, str, int], list[tuple[int, int, int]]]:
    """The visits by device and place. Venue and beacons are numbered from 1."""
    found = {}
    for udid, seen in walkers.seen.items():
        found[udid, "venue", 1] = visits(seen)
        for number in range(3):
            if there := visits([each for each in seen if each[1] == number]):
                found[udid, "beacon", number + 1] = there
    return found


def once(records: list[Record]) -> dict[str, dict[str, Any]]:
    """Messages by id, in the order of their first copies; a repeat has the same content."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        body = json.loads(record.value or b"") | {"triggered_at": "", "expires_at": ""}
        assert found.setdefault(body["id"], body) == body
    return found


def second(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


async def test_visits_under_kills(stores: Rig, topics: TopicSet) -> None:
    world = made()
    await world.save(stores.environment["DATABASE_URL"])
    await topics.create()
    walkers, dice = Walkers(world), random.Random(6)
    pair = [stores.trigger(**SETTINGS) for _ in range(2)]
    for each in pair:
        await each.until_ready()
    begin, harms = time.time(), 0
    async with topics.publishing() as send:
        while (now := time.time()) < begin + SECONDS:
            for message in walkers.step(now):
                await send(message)
            if now - begin > harms * SECONDS / (HARMS + 1) + 3 and harms < HARMS:
                victim = dice.randrange(2)
                if harms % 5 == 4:  # a rebalance without a kill
                    pair[victim].process.send_signal(signal.SIGTERM)
                else:
                    pair[victim].kill()
                pair[victim] = stores.trigger(**SETTINGS)
                harms += 1
            # The pace of the devices, not a wait for something to happen.
            await asyncio.sleep(max(0.0, now + PACE - time.time()))
    end, wanted = time.time(), expected(walkers)
    count = sum(map(len, wanted.values()))

    async def all_have_left() -> bool:
        found = once(await topics.read("presence")).values()
        return [each["type"] for each in found].count("exit") >= count

    await eventually(all_have_left, what="the exits of an idle topic")
    for each in pair:
        await each.until_ready()
        await each.stop()
    assert harms == HARMS
    published = await topics.read("presence")
    # How long after its silence each exit came, for those after the end, on an idle topic.
    exits = [
        (each, second(body["exited_at"]))
        for each in published
        if "exited_at" in (body := json.loads(each.value or b""))
    ]
    late = [each.timestamp / 1000 - at - 1 - SILENCE for each, at in exits if at + SILENCE > end]
    assert max(late) < MOST_SECONDS  # (messages have whole seconds)
    events = list(once(published).values())
    assert not any(each["device"]["udid"].startswith("late") for each in events)
    found: dict[tuple[str, str, int], list[tuple[int, int, int]]] = defaultdict(list)
    inside: dict[tuple[str, str, int], str] = {}
    for event in events:
        key = event["device"]["udid"], event["place"]["kind"], event["place"]["id"]
        if event["type"] == "enter":
            assert key not in inside, "a visit begins after the last one has ended"
            inside[key] = event["visit_id"]
            continue
        assert inside.pop(key) == event["visit_id"]
        assert event["cause"] == "silence"
        stay = second(event["entered_at"]), second(event["exited_at"]), event["detections"]
        found[key].append(stay)
    assert not inside
    assert found == wanted
    sent = once(await topics.read("notifications")).values()
    of_beacons = {each["visit_id"] for each in events if each["place"]["kind"] == "beacon"}
    assert sorted((each["on"], each["visit_id"]) for each in sent) == sorted(
        (on, visit) for on in ("enter", "exit") for visit in of_beacons
    )
