"""Data for the console: a venue, a campaign, a device and their figures; and the sign-in."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from selenium.webdriver.common.keys import Keys

from tests.api.harness import PASSWORD, Bodies
from tests.browser.conftest import OWNER, BrowserVisit
from tests.browser.page import BrowserPage
from tests.console.visitor import Visitor, decided, device_of, statistic


class World(NamedTuple):
    """Records of one company, created through the interface."""

    visitor: Visitor
    bodies: Bodies
    ids: dict[str, int]


@pytest.fixture
async def world(visit: BrowserVisit) -> World:
    visitor, bodies = Visitor(visit.harness, visit.headers), Bodies()
    made = visitor.made
    size = {"image": None, "width": 30, "height": 12}
    venue = await made("/region", bodies.venue(name="Pier", time_zone="Europe/Paris", **size))
    where = f"/region/{venue}"
    beacon = await made(f"{where}/beacon", bodies.beacon(name="Door", x=5, y=5))
    await made(f"{where}/beacon", bodies.beacon(name="Quay", x=20, y=8, active=False))
    await made(f"{where}/geofencing", bodies.geofence())
    body = bodies.campaign(name="Last boat", format="html", html="<h1>Six o'clock</h1>")
    campaign = await made(f"/lieu/{venue}/campaign", body)
    device = await device_of(visitor, "anna")
    today = datetime.now(UTC).date()
    await visitor.api.add(
        *(
            statistic(today - timedelta(days=back), kind, ref, venue, (100 + back, 20, 7))
            for back in range(10)
            for kind, ref in (("venue", venue), ("beacon", beacon), ("campaign", campaign))
        )
    )
    for back, times in ((0, 4), (1, 5)):
        sums = {f"n:{hour}": times for hour in range(8, 20)}
        sums |= {"r:outside_hours": 10 * times, "r:too_far": 2 * times, "r:granted": 7}
        await decided(visitor, sums | {f"c:{campaign}:outside_hours": 10 * times}, back)
    ids = {"venue": venue, "beacon": beacon, "campaign": campaign, "device": device}
    return World(visitor, bodies, ids)


def pages(ids: dict[str, int]) -> list[str]:
    """The pages that are examined."""
    own, device = f"/venues/{ids['venue']}", f"/devices/{ids['device']}"
    return [
        *("", "/live", f"{own}/campaigns/{ids['campaign']}", f"{own}/campaigns/new", "/venues"),
        *(own, f"{own}/edit", f"{own}/campaigns", f"{own}/beacons", f"{own}/beacons/import"),
        *(f"{own}/beacons/{ids['beacon']}", f"{own}/geofences/new", "/devices", device),
        *(f"{device}/held", "/company", "/connector", "/statistics", "/audit", "/audit/deleted"),
        "/nowhere",
    ]


def sign_in(page: BrowserPage) -> None:
    page.open("/")
    page.fill("E-mail", OWNER)
    page.fill("Password", PASSWORD)
    page.press(Keys.ENTER)
    page.wait_for_text("What does not send now, and why")
