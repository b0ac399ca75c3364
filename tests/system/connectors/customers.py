"""Companies with a connector each, a web service that answers each company in its own way, and the
outcome of every call."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from catalog.models import Company, Connector
from catalog.secrets import open_cipher
from tests.servers.http_service import (
    Answer,
    ReceivedRequest,
    content,
    replying,
    resetting,
)
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import BeaconPlan, World

SECRET_KEY = "a passphrase for tests"
SETTINGS = {"SECRET_KEY": SECRET_KEY, "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
TOKEN = "very-secret-token"
DELAY = 86_400
# A customer's name, and how its service answers: each kind of outcome once.
EACH_ANSWER = {
    "quick": content(after=0.02),
    "slow": content(after=0.3),
    "declines": replying(204, after=0.02),
    "fails": replying(404, after=0.02),
    "resets": resetting,  # opens its breaker: most of its calls wait
}


@dataclass
class Customer:
    """A company, its beacon, and its campaign."""

    name: str
    company: Company
    beacon: BeaconPlan

    def detection(self, udid: str, **device: Any) -> Message:
        """A detection of the beacon now, by a device."""
        uuid, major, minor = self.beacon.triple
        body = {"uuid": uuid, "major": major, "minor": minor, "proximity": "immediate"}
        value = json.dumps(body | {"device": {"udid": udid, **device}}).encode()
        return Message(0, udid.encode(), value)


class Customers:
    """A world of such companies. The company `x` is served at /x."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.of: dict[str, Customer] = {}
        self._cipher = open_cipher(SECRET_KEY)

    def add(self, name: str, url: str | None, **fields: Any) -> Customer:
        """A company whose connector is at `url`; None: it has no connector."""
        world = self.world
        company = world.company(name)
        parameters = json.dumps([{"key": "x-token", "value": TOKEN}])
        if url is not None:
            values = {
                "company": company,
                "name": f"{name}'s",
                "url": url,
                "method": "POST",
                "auth": "header",
                "parameters": self._cipher.encrypt(parameters),
                "secret": None,
                **fields,
            }
            world.connectors[name] = Connector(**values)
            world.records.append(world.connectors[name])
        venue = world.venue(company, f"{name}'s hall")
        beacon = world.beacon(venue, len(world.beacons))
        world.campaign(venue, f"{name}'s", [beacon], format="connector", template=None, delay=DELAY)
        self.of[name] = Customer(name, company, beacon)
        return self.of[name]

    def encrypt(self, text: str) -> str:
        """The parameters in the form in which the catalog stores them."""
        return self._cipher.encrypt(text)


def by_path(answers: Mapping[str, Answer]) -> Answer:
    """A service whose answer depends on the path."""

    async def answer(received: ReceivedRequest, writer: Any) -> None:
        await answers[received.path.strip("/")](received, writer)

    return answer


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


async def account(topics: TopicSet, customers: Customers) -> Account:
    """Read the topics to their ends."""
    names = {customer.company.id: name for name, customer in customers.of.items()}
    found = Account({}, {}, {})
    for topic in ("connector-calls", "notifications", "dead-letters"):
        for record in await topics.read(topic):
            body = json.loads(record.value or b"")
            name = names[body["company"]["id"]]
            if topic == "connector-calls":
                found.calls.setdefault(name, Counter())[body["id"]] += 1
            elif topic == "notifications":
                found.notifications.setdefault(name, []).append(body)
            else:
                reason = dict(record.headers)["reason"].decode()
                found.letters.setdefault(name, []).append((body["id"], reason))
    return found
