"""Concurrent requests: one wins, and nothing is left half-written."""

import asyncio
from collections import Counter

from sqlalchemy import func, select

from catalog.models import Beacon, Outbox, Tag
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness

CLIENTS = 50


async def test_one_of_fifty_gets_the_triple(api: Harness, bodies: Bodies):
    holders = [await api.account() for _ in range(2)]
    venues = [
        (await api.call("POST", "/region", holder, bodies.venue())).json()["id"]
        for holder in holders
    ]

    async def create(number: int) -> int:
        mine = number % 2
        body = bodies.beacon(minor=7, name=f"beacon of {number}", tags=[f"tag {number}", "same"])
        path = f"/region/{venues[mine]}/beacon"
        return (await api.call("POST", path, holders[mine], body)).status_code

    statuses = await asyncio.gather(*map(create, range(CLIENTS)))
    assert Counter(statuses) == {201: 1, 409: CLIENTS - 1}
    async with api.database.read() as session:
        beacon = (await session.scalars(select(Beacon))).one()
        tags = set(await session.scalars(select(Tag.name)))
        noted = await session.scalars(select(Outbox.ref).where(Outbox.kind == "beacon_id"))
        assert noted.all() == [str(beacon.id)]
    assert tags == {beacon.name.replace("beacon of", "tag"), "same"}


async def test_a_new_tag_is_made_once(api: Harness, bodies: Bodies):
    holder = await api.account()
    venue = (await api.call("POST", "/region", holder, bodies.venue())).json()["id"]
    created = await asyncio.gather(
        *(
            api.call("POST", f"/region/{venue}/beacon", holder, bodies.beacon(tags=["new"]))
            for _ in range(20)
        )
    )
    assert {answer.status_code for answer in created} == {201}
    assert len({answer.json()["tags"][0]["id"] for answer in created}) == 1


async def test_one_connector_a_company(api: Harness, bodies: Bodies):
    holder = await api.account()
    body = bodies.connector()
    made = await asyncio.gather(*(api.call("PUT", "/connector", holder, body) for _ in range(10)))
    assert {answer.status_code for answer in made} == {200}
    assert len({answer.json()["id"] for answer in made}) == 1


async def test_a_beacon_in_a_venue_that_is_being_deleted(api: Harness, bodies: Bodies):
    holder = await api.account()
    venue = (await api.call("POST", "/region", holder, bodies.venue())).json()["id"]
    where = f"/region/{venue}"
    answers = await asyncio.gather(
        *(api.call("POST", f"{where}/beacon", holder, bodies.beacon()) for _ in range(5)),
        api.call("DELETE", where, holder),
        *(api.call("POST", f"{where}/beacon", holder, bodies.beacon()) for _ in range(5)),
    )
    assert {answer.status_code for answer in answers} <= {200, 201, 404}
    async with api.database.read() as session:
        assert await session.scalar(select(func.count()).select_from(Beacon)) == 0
