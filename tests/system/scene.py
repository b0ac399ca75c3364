"""Devices, a customer's service, and the visible results: what was published, and exact SQL."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from tests.servers.http_service import Answer, content
from tests.system.rig import Rig
from tests.system.topics import TopicSet

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
SECRET_KEY = "a passphrase for tests"
CATALOG = Path(__file__).parent / "scene.json"
SERVICE_PORT = 18_999  # of the customer's service, as in scene.json
WELCOME, CONNECTOR = (
    "Welcome",
    "Ask",
)  # a campaign with its content, and one of the customer's service


def reply() -> Answer:
    """The customer's service."""
    return content(title="Asked", push="Asked")


class Devices:
    """Publishes what devices report, to the topics under `prefix`."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix

    async def detect(self, *udids: str, minor: int = 1) -> None:
        """Publish a detection of each device. Beacon 1 has both campaigns, beacon 9 has none."""
        await self._publish("detections", [(udid, detection(udid, minor)) for udid in udids])

    async def send_junk(self, *udids: str) -> None:
        """Publish detections that cannot be decoded."""
        await self._publish("detections", [(udid, {"minor": "none"}) for udid in udids])

    async def open_application(self, *udids: str) -> None:
        """Each device opens the company's application."""
        messages = [
            (udid, {"api_key": "shop-key", "device": {"udid": udid, "token_push": f"of {udid}"}})
            for udid in udids
        ]
        await self._publish("authentications", messages)

    async def _publish(self, name: str, messages: list[tuple[str, dict[str, Any]]]) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap) as producer:
            for udid, body in messages:
                value = json.dumps(body).encode()
                await producer.send_and_wait(self._prefix + name, value, key=udid.encode())


def detection(udid: str, minor: int) -> dict[str, Any]:
    """A detection with the present time."""
    return {
        "uuid": UUID,
        "major": 1,
        "minor": minor,
        "proximity": "near",
        "device": {"udid": udid, "name": "android"},
        "detected_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


async def sent(topics: TopicSet) -> dict[str, set[str]]:
    """The campaigns that each device has received."""
    found: dict[str, set[str]] = {}
    for message in await _notifications(topics):
        found.setdefault(message["device"]["udid"], set()).add(message["campaign"]["name"])
    return found


async def counted(topics: TopicSet) -> Counter[str]:
    """The number of distinct notifications of each device."""
    ids = {(m["id"], m["device"]["udid"]) for m in await _notifications(topics)}
    return Counter(udid for _, udid in ids)


async def _notifications(topics: TopicSet) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in await topics.read("notifications")]


async def is_exact(rig: Rig) -> bool:
    """Whether `proximity verify` finds no difference."""
    verify = rig.start("verify")
    return await verify.ended() == 0
