"""Companies with a connector each, records of connector-calls, and the outcome of every call."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from catalog.models import Beacon
from catalog.secrets import open_cipher
from engine.kafka.messages import CompanyReference, ConnectorCall, KnownDevice, format_instant
from tests.connectors.calls import connector_endpoint, message
from tests.servers.http_service import Answer, ReceivedRequest
from tests.system.topics import Message, TopicSet
from tests.system.world import REQUESTED, World

SECRET_KEY = "a passphrase for tests"
SETTINGS = {"SECRET_KEY": SECRET_KEY, "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
TOKEN = "very-secret-token"
CIPHER = open_cipher(SECRET_KEY)
_PARAMETERS = CIPHER.encrypt(json.dumps([{"key": "x-token", "value": TOKEN}]))
_NO_PARAMETERS = CIPHER.encrypt("[]")


def add_customer(world: World, name: str, url: str | None, **fields: Any) -> Beacon:
    """The beacon of a company whose connector is at `url`; None: it has no connector."""
    company = world.company(name)
    if url is not None:
        world.connector(company, **{"url": url, "parameters": _PARAMETERS} | fields)
    beacon = world.beacon(world.venue(company, f"{name}'s hall"), len(world.beacons))
    world.campaign(beacon.venue, f"{name}'s", [beacon], delay=86_400, **REQUESTED)
    return beacon


def by_path(answers: Mapping[str, Answer]) -> Answer:
    """A service whose answer depends on the path."""

    async def answer(received: ReceivedRequest, writer: Any) -> None:
        await answers[received.path.strip("/")](received, writer)

    return answer


def call(url: str, udid: str, *, company: int = 1, **fields: Any) -> ConnectorCall:
    """A call about a detection now, as the trigger writes it."""
    at = format_instant(time.time())
    values: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "company": CompanyReference(company),
        "device": KnownDevice(udid=udid),
        "connector": connector_endpoint(url=url, parameters=_NO_PARAMETERS),
        **dict.fromkeys(("detected_at", "triggered_at", "expires_at"), at),
    }
    return message(**(values | fields))


def message_of(one: ConnectorCall) -> Message:
    """The record of a call, keyed by device."""
    return Message(one.device.udid.encode(), msgspec.json.encode(one))


async def publish_calls(topics: TopicSet, *calls: ConnectorCall) -> None:
    """Publish calls."""
    await topics.publish(map(message_of, calls), "connector-calls")


class Account(NamedTuple):
    """Calls and results by company: ids of calls, notifications, and reasons of dead letters by id.

    Ids of notifications and letters may repeat.
    """

    calls: dict[str, Counter[str]]
    notifications: dict[str, list[dict[str, Any]]]
    letters: dict[str, list[tuple[str, str]]]

    def declined(self, company: str) -> set[str]:
        """Calls without an outcome."""
        published = {each["id"] for each in self.notifications.get(company, ())}
        return set(self.calls[company]) - published - {n for n, _ in self.letters.get(company, ())}


async def account(topics: TopicSet, world: World) -> Account:
    """Read the topics to their ends."""
    names = {company.id: company.name for company in world.keys.values()}
    found = Account({}, {}, {})
    for body in await topics.bodies("connector-calls"):
        found.calls.setdefault(names[body["company"]["id"]], Counter())[body["id"]] += 1
    for body in await topics.bodies("notifications"):
        found.notifications.setdefault(names[body["company"]["id"]], []).append(body)
    for record in await topics.read("dead-letters"):
        body = json.loads(record.value or b"")
        outcome = body["id"], dict(record.headers)["reason"].decode()
        found.letters.setdefault(names[body["company"]["id"]], []).append(outcome)
    return found
