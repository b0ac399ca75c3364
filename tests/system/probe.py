"""Publishes detections of new devices, to observe which campaigns fire at a beacon, and when."""

import asyncio
import json
import time
from itertools import count

from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import Triple


class Probe:
    """Publishes detections; `fired` has the campaigns that each of them fired."""

    def __init__(self, topics: TopicSet) -> None:
        self._topics = topics
        self._numbers = count()
        self.sent: dict[str, tuple[Triple, float]] = {}

    async def fires(self, triple: Triple) -> set[str]:
        """The names of the campaigns that a detection of this beacon fires now."""
        message = self._message(triple)
        await self._topics.publish([message])
        await self._topics.until_done()
        assert message.key is not None
        return (await self.fired()).get(message.key.decode(), set())

    async def fired(self) -> dict[str, set[str]]:
        """The names of the campaigns that fired, by device."""
        found: dict[str, set[str]] = {}
        for record in await self._topics.read("notifications"):
            body = json.loads(record.value or b"")
            found.setdefault(body["device"]["udid"], set()).add(body["campaign"]["name"])
        return found

    async def tick(self, triples: list[Triple]) -> None:
        """Publish a detection of each beacon every 50 ms, until cancelled."""
        async with self._topics.publishing() as send:
            while True:
                for triple in triples:
                    await send(self._message(triple))
                await send.settle()
                await asyncio.sleep(0.05)

    def _message(self, triple: Triple) -> Message:
        udid = f"probe {next(self._numbers)}"
        self.sent[udid] = (triple, time.time())
        uuid, major, minor = triple
        body = {"uuid": uuid, "major": major, "minor": minor, "proximity": 1}
        return Message(0, udid.encode(), json.dumps(body | {"device": {"udid": udid}}).encode())
