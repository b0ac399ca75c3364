"""Visits under kills and rebalances: no event is lost, added or out of order, beside a brute force
that looks at each device's whole history."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.servers.compiled import compiled
from tests.servers.waiting import eventually
from tests.system.rig import Crew, Rig
from tests.system.topics import Message, TopicSet
from tests.system.traffic import detection
from tests.system.world import World

SILENCE = 5  # seconds
HARMS = ("kill", "kill", "kill", "kill", "restart") * 2
DEVICES = 80
PACE = 0.5  # seconds from one detection of a device to its next one, in a visit
SECONDS = 36
MOST_SECONDS = 10.0  # on a machine that may stand still; 2 on a quiet one

Visit = tuple[int, int, int]


def made() -> World:
    """Three beacons of a venue whose company asks for presence, with campaigns for all moments."""
    world = World()
    company = world.company("visited", presence=True, visit_silence=SILENCE)
    venue = world.venue(company, "Hall")
    beacons = [world.beacon(venue, minor) for minor in range(3)]
    for on in ("enter", "exit"):
        world.campaign(venue, on, beacons, on=on)
    return world


class Walkers:
    """Devices that come and go; `seen` has when each was published, by device and beacon."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = random.Random(5)
        self.seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._until = [0.0] * DEVICES  # of the visit, or below 0 of the absence
        self._at = [0] * DEVICES  # the beacon's number

    def step(self, now: float) -> Iterator[Message]:
        """The detections of this moment, and one that is too old for a visit."""
        for number in range(DEVICES):
            if abs(self._until[number]) < now:
                arrives = self._until[number] <= 0
                length = self._dice.uniform(2, 8) if arrives else -self._dice.uniform(9, 16)
                self._until[number] = (now + abs(length)) * (1 if arrives else -1)
                self._at[number] = self._dice.randrange(3)
            if self._until[number] > 0:
                self.seen[f"walker-{number}"].append((now, self._at[number]))
                yield self._message(f"walker-{number}", now, self._at[number])
        yield self._message(f"late-{self._dice.randrange(50)}", now - 60, 0)

    def _message(self, udid: str, at: float, number: int) -> Message:
        return detection(self._world.beacons[number], udid, detected_at=round(at * 1000))

    def visits(self) -> dict[tuple[str, str, int], list[Visit]]:
        """The visits by device and place, by brute force."""
        beacons, found = self._world.beacons, {}
        for udid, seen in self.seen.items():
            found[udid, "venue", beacons[0].venue.id] = _visits([at for at, _ in seen])
            for number, beacon in enumerate(beacons):
                if there := [at for at, each in seen if each == number]:
                    found[udid, "beacon", beacon.id] = _visits(there)
        return found


def _visits(times: list[float]) -> list[Visit]:
    """Entry, last detection (whole seconds) and detections of each visit of one place."""
    found: list[list[float]] = []
    for at in times:
        if not found or at - found[-1][-1] > SILENCE:
            found.append([])
        found[-1].append(at)
    return [(int(each[0]), int(each[-1]), len(each)) for each in found]


def once(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each message once, in the order of their first copies; a repeat has the same content."""
    found: dict[str, dict[str, Any]] = {}
    for body in bodies:
        body |= {"triggered_at": "", "expires_at": ""}
        assert found.setdefault(body["id"], body) == body
    return list(found.values())


def second(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize("decisions", ["10", "0"], ids=["decoded", "undecoded"])
async def test_visits_under_kills(stores: Rig, topics: TopicSet, decisions: str) -> None:
    """Where no decisions of devices are kept, the compiled filter refuses what holds a visit."""
    if decisions == "0":
        compiled("engine.trigger.refusal_filter")
    world = made()
    await world.save(stores.environment["DATABASE_URL"])
    await topics.create()
    walkers = Walkers(world)
    pair = Crew(stores, "trigger", 2, random.Random(6), RECENT_DECISIONS=decisions)
    await pair.until_ready()
    begin = time.time()
    async with topics.publishing() as send:

        async def walk() -> None:
            while (now := time.time()) < begin + SECONDS:
                for message in walkers.step(now):
                    await send(message)
                # The pace of the devices, not a wait for something to happen.
                await asyncio.sleep(max(0.0, now + PACE - time.time()))

        walking = asyncio.create_task(walk())
        for number, harm in enumerate(HARMS):
            moment = begin + 3 + number * (SECONDS - 5) / len(HARMS)
            await asyncio.sleep(max(0.0, moment - time.time()))  # spread over the walk
            await pair.harm(harm)
        await walking
    await pair.until_ready()
    end, wanted = time.time(), walkers.visits()
    count = sum(map(len, wanted.values()))

    async def all_have_left() -> bool:
        found = once(await topics.bodies("presence"))
        return [each["type"] for each in found].count("exit") >= count

    await eventually(all_have_left, what="the exits of an idle topic")
    await pair.stop()
    events = once(await topics.bodies("presence"))
    assert visits_of(events) == wanted
    sent = once(await topics.bodies("notifications"))
    of_beacons = {each["visit_id"] for each in events if each["place"]["kind"] == "beacon"}
    assert sorted((each["on"], each["visit_id"]) for each in sent) == sorted(
        (on, visit) for on in ("enter", "exit") for visit in of_beacons
    )
    # How long after its silence each exit came, for those after the end, on an idle topic.
    # (Messages have whole seconds.)
    late = sorted(
        record.timestamp / 1000 - second(body["exited_at"]) - 1 - SILENCE
        for record, body in zip(
            await topics.read("presence"), await topics.bodies("presence"), strict=True
        )
        if "exited_at" in body and second(body["exited_at"]) + SILENCE > end
    )
    assert not late or late[len(late) // 2] < MOST_SECONDS


def visits_of(events: list[dict[str, Any]]) -> dict[tuple[str, str, int], list[Visit]]:
    """The visits that the events tell; each begins after the last one has ended."""
    found: dict[tuple[str, str, int], list[Visit]] = defaultdict(list)
    inside: dict[tuple[str, str, int], str] = {}
    for event in events:
        key = event["device"]["udid"], event["place"]["kind"], event["place"]["id"]
        if event["type"] == "enter":
            assert key not in inside
            inside[key] = event["visit_id"]
            continue
        assert inside.pop(key) == event["visit_id"]
        assert event["cause"] == "silence"
        stay = second(event["entered_at"]), second(event["exited_at"]), event["detections"]
        found[key].append(stay)
    assert not inside
    return found
