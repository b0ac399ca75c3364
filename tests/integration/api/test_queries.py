"""The number of queries: the same for one record and for many; none for a known session."""

from datetime import UTC, datetime

import pytest

from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers
from tests.integration.api.statement_count import counted

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
async def owner(api: Harness) -> Headers:
    holder = await api.account()
    await api.call("GET", "/profile", holder)
    return holder


@pytest.fixture
async def venue(api: Harness, owner: Headers, bodies: Bodies) -> int:
    return int((await api.call("POST", "/region", owner, bodies.venue())).json()["id"])


async def fill(api: Harness, owner: Headers, bodies: Bodies, venue: int) -> None:
    """Create one more record of each kind, linked to each other."""
    beacon = bodies.beacon(tags=[{"name": bodies.venue()["name"]}, "same"])
    made = await api.call("POST", f"/region/{venue}/beacon", owner, beacon)
    fence = await api.call("POST", f"/region/{venue}/geofencing", owner, bodies.geofence())
    links = {"beacons": [made.json()], "geofencings": [fence.json()], "tags": made.json()["tags"]}
    campaign = bodies.campaign(**links)
    assert (await api.call("POST", f"/lieu/{venue}/campaign", owner, campaign)).status_code == 201
    await api.call("POST", "/region", owner, bodies.venue())


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/profile", 1),
        ("/profile/application", 1),
        ("/region", 1),
        ("/region/{venue}", 1),
        ("/region/{venue}/beacon", 2),
        ("/region/{venue}/geofencing", 1),
        ("/lieu/{venue}/campaign", 5),
        ("/connector", 1),
    ],
)
async def test_reading_many_costs_as_much_as_reading_one(
    api: Harness, owner: Headers, bodies: Bodies, venue: int, path: str, most: int
):
    where = path.format(venue=venue)
    counts = []
    for times in (1, 8):
        for _ in range(times):
            await fill(api, owner, bodies, venue)
        with counted(api.database) as statements:
            await api.call("GET", where, owner)
        counts.append(len(statements))
        assert not any("session" in statement for statement in statements), statements
    assert counts == [most, most]
