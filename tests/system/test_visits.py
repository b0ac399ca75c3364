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

from tests.servers.proximity import Rig
from tests.servers.waiting import eventually
from tests.system.crew import Crew
from tests.system.topics import Message, Send, TopicSet
from tests.system.traffic import detection
from tests.system.world import World

SILENCE = 5  # seconds
HARMS = ("kill", "kill", "kill", "restart", "kill", "kill", "kill")
DEVICES = 80
PACE = 0.5  # seconds from one detection of a device to its next one, in a visit
SECONDS = 26
# What arrives later than the silence is late: a walk with a step that takes longer is repeated.
LONGEST_STEP = 2.0
WALKS = 3
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
    """Devices that come and go; `seen` has when each was published, by device and beacon.
    `longest_step` is how many seconds it took until the detections of a moment were in Kafka."""

    def __init__(self, world: World, name: str) -> None:
        self.longest_step = 0.0
        self._world = world
        self._name = name
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
                self.seen[f"{self._name}-{number}"].append((now, self._at[number]))
                yield self._message(f"{self._name}-{number}", now, self._at[number])
        yield self._message(f"late-{self._dice.randrange(50)}", now - 60, 0)

    async def walk(self, send: Send) -> None:
        """Walk through the time, at the devices' pace."""
        end = time.time() + SECONDS
        while (now := round(time.time(), 3)) < end:  # as precise as the messages
            await asyncio.gather(*[await send(message) for message in self.step(now)])
            self.longest_step = max(self.longest_step, time.time() - now)
            # Not a wait for something to happen.
            await asyncio.sleep(max(0.0, now + PACE - time.time()))

    def _message(self, udid: str, at: float, number: int) -> Message:
        return detection(self._world.beacons[number], udid, detected_at=round(at * 1000))

    def of(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages about these devices, and about late ones, each once."""
        names = f"{self._name}-", "late-"
        return [each for each in once(bodies) if each["device"]["udid"].startswith(names)]

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


async def test_visits_under_kills(stores: Rig, topics: TopicSet) -> None:
    """One of the two decodes what it keeps as decisions of devices. The other one keeps none, and
    where something was compiled, that refuses what holds a visit."""
    world = made()
    await world.save(stores.settings["DATABASE_URL"])
    await topics.create()
    crews = [
        Crew(stores, "trigger", 1, random.Random(6), RECENT_DECISIONS=number)
        for number in ("10", "0")
    ]
    for crew in crews:
        await crew.until_ready()
    async with topics.publishing() as send:
        for number in range(WALKS):
            walkers, begin = Walkers(world, f"walker-{number}"), time.time()
            walking = asyncio.create_task(walkers.walk(send))
            for place, harm in enumerate(HARMS):
                moment = begin + 3 + place * (SECONDS - 5) / len(HARMS)
                await asyncio.sleep(max(0.0, moment - time.time()))  # spread over the walk
                await crews[place % 2].harm(harm)
            await walking
            if walkers.longest_step < LONGEST_STEP:
                break
        else:
            pytest.fail(f"in each walk Kafka took {LONGEST_STEP} s or longer for a step")
    for crew in crews:
        await crew.until_ready()
    end, wanted = time.time(), walkers.visits()
    count = sum(map(len, wanted.values()))

    async def all_have_left() -> bool:
        found = walkers.of(await topics.bodies("presence"))
        return [each["type"] for each in found].count("exit") >= count

    await eventually(all_have_left, what="the exits of an idle topic")
    for crew in crews:
        await crew.stop()
    events = walkers.of(await topics.bodies("presence"))
    assert visits_of(events) == wanted
    sent = walkers.of(await topics.bodies("notifications"))
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
