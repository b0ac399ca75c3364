"""An SRE's first hour: `check`, the roles one by one, a rolling restart, dead
letters of a service that was down, the index."""

import asyncio
from typing import Any

import httpx

from catalog.models import Beacon
from tests.api.harness import Bodies
from tests.servers.http_service import HttpService, content, replying
from tests.servers.proximity import Command
from tests.servers.waiting import eventually
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.walks.conftest import SECRET_KEY, User
from tests.system.world import UUIDS

# With some metrics that have moved in each.
ROLES = {
    "trigger": ("batch_size", "batch_seconds", "index_lookups"),
    "connector": ("connector_call_seconds", "connector_breakers"),
    "recorder": ("recorder_rows", "recorder_transaction_seconds"),
}
VISITORS = {"first", *(f"{when} {role}" for role in ROLES for when in ("before", "after"))}
EMAIL, PASSWORD = "owner@pier.example", "a password of the company"
TRIPLE = {"uuid": UUIDS[1], "major": 0, "minor": 1}
DATES = {"start": "2026-01-01T00:00:00+0100", "end": "2040-12-31T00:00:00+0100"}
ALWAYS = DATES | {"start_time": "00:00", "end_time": "24:00", "sunday": True}


async def call(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    """Call an operation of the interface, which must succeed. Returns the JSON of the answer."""
    answer = await client.request(method, path, json=body)
    assert answer.is_success, (method, path, answer.status_code, answer.text)
    return answer.json()


async def test_the_hour(user: User, kafka_bootstrap: str, topic_prefix: str) -> None:
    set_up(user)
    topics = TopicSet(kafka_bootstrap, topic_prefix, topic_prefix)
    service = HttpService(replying(404))  # not tried again; fewer failures than open the breaker
    served = user.start("api")
    await served.until_ready()
    interface = httpx.AsyncClient(base_url=f"{served.url}/v2", timeout=60)
    async with interface as client, service.running():
        await add_a_company(client, service)
        roles = {role: user.start("run", "--role", role) for role in ROLES}
        for command in roles.values():
            await command.until_ready()
        await walk_in(topics, "first")
        await until_sent(topics, "by url", {"first"})
        await until_up_to_date(client)
        await rolling_restart(user, roles, topics)
        await dead_letters_of_a_service_that_was_down(user, client, service, topics)
        built = "the index is built: 1 beacons, 0 geofences, 0 tags, 2 campaigns, 1 connectors"
        assert built in user("index", "rebuild").splitlines()
        await counted_right(user, client)
    for role, names in ROLES.items():
        metrics = await roles[role].metrics()
        assert all(map(metrics.total, names)), role
    for command in roles.values():
        await command.stop()
        assert SECRET_KEY not in command.output


def set_up(user: User) -> None:
    assert user("migrate").splitlines()[-1] == "the database is up to date"
    create = ("account", "create", EMAIL, "--company", "Pier", "--create-company")
    user(*create, "--password-stdin", given=f"{PASSWORD}\n")
    assert {row["state"] for row in user.rows("check")} <= {"ok", "warning"}


async def add_a_company(client: httpx.AsyncClient, service: HttpService) -> None:
    """A company whose service is not running yet."""
    session = await call(client, "POST", "/auth", {"email": EMAIL, "password": PASSWORD})
    token = session["session"]["token"]
    client.headers.update({"x-service-key": EMAIL, "x-service-token": token})
    bodies = Bodies()
    venue = (await call(client, "POST", "/region", bodies.venue()))["id"]
    beacon = bodies.beacon(**TRIPLE, proximity="far")
    made = await call(client, "POST", f"/region/{venue}/beacon", beacon)
    for form in ("url", "connector"):
        of = {"name": f"by {form}", "format": form, "beacons": [{"id": made["id"]}]}
        await call(client, "POST", f"/lieu/{venue}/campaign", bodies.campaign(**of, **ALWAYS))
    await call(client, "PUT", "/connector", bodies.connector(url=service.url("/offer")))


async def walk_in(topics: TopicSet, udid: str) -> None:
    """Publish a detection of the beacon by a device."""
    await topics.publish([detection(Beacon(**TRIPLE), udid)])


async def until_sent(topics: TopicSet, name: str, udids: set[str]) -> None:
    """Wait for the campaign's notification to each of the devices; there is one to each."""

    async def is_sent() -> bool:
        bodies = {each["id"]: each for each in await topics.bodies("notifications")}.values()
        sent = [each["device"]["udid"] for each in bodies if each["campaign"]["name"] == name]
        return sorted(sent) == sorted(udids)

    await eventually(is_sent, what=f"{name} is sent")


async def until_up_to_date(client: httpx.AsyncClient) -> None:
    """Wait until every role has reported it (of a process that has ended they hear for 30 s)."""

    async def is_reported() -> bool:
        roles = await call(client, "GET", "/realtime/roles")
        return {each["role"]: each["state"] for each in roles} == dict.fromkeys(ROLES, "up_to_date")

    await eventually(is_reported, what="every role is up to date")


async def rolling_restart(user: User, roles: dict[str, Command], topics: TopicSet) -> None:
    """Restart the processes one after the other, under load."""
    for role in ROLES:
        await walk_in(topics, f"before {role}")
        new = user.start("run", "--role", role)
        await roles[role].stop()
        await walk_in(topics, f"after {role}")
        await new.until_ready()
        roles[role] = new
    await until_sent(topics, "by url", VISITORS)


async def dead_letters_of_a_service_that_was_down(
    user: User, client: httpx.AsyncClient, service: HttpService, topics: TopicSet
) -> None:
    """Calls that failed are replayed once the service answers as it should."""
    await topics.until("dead-letters", len(VISITORS))
    printed = user("dead-letters", "list")
    assert printed.splitlines()[-1] == f"{len(VISITORS)} dead letters: 7 connector_status"
    service.answer = content(title="Only for you")
    trial = await call(client, "POST", "/connector/test")
    assert (trial["outcome"], trial["notification"]["title"]) == ("published", "Only for you")
    put = await asyncio.to_thread(user, "dead-letters", "replay")
    assert put == f"{len(VISITORS)} dead letters put back\n"
    await until_sent(topics, "by connector", VISITORS)


async def counted_right(user: User, client: httpx.AsyncClient) -> None:
    """SQL and the sums in Redis."""
    exact = {"detections": len(VISITORS), "notifications": 2 * len(VISITORS)}
    found: list[Any] = []

    async def is_right() -> bool:
        lines = await call(client, "GET", "/statistics?kind=venue")
        reasons = await call(client, "GET", "/statistics/reasons")
        found[:] = (
            {name: sum(each[name] for each in lines) for name in exact},
            [(each["reason"], each["count"]) for each in reasons],
        )
        return found == [exact, [("granted", 2 * len(VISITORS))]]

    try:
        await eventually(is_right)
    except AssertionError as error:
        raise AssertionError(f"SQL and Redis: {found}") from error
    assert user("verify").splitlines()[-1] == "no differences"
