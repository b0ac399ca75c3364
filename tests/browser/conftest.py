"""The console in this process on a real port, Debian's chromium as the browser, and data to see."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from engine.wiring.api import api_server
from tests.api.conftest import _cheap_passwords
from tests.api.harness import PASSWORD, Bodies, Harness, Headers, app_settings, harness
from tests.api.process import make_account
from tests.browser.page import BrowserPage, start_browser
from tests.console.visitor import Visitor, decided, device_of, statistic
from tests.servers.missing import skipping
from tests.servers.process import find_program

__all__ = ["_cheap_passwords"]

OWNER = "owner@pier.example"
T = TypeVar("T")


class BrowserVisit(NamedTuple):
    """The served console, its application, and an account with all permissions."""

    harness: Harness
    site: str
    headers: Headers
    driver: Chrome

    async def walk(self, steps: Callable[[BrowserPage], T]) -> T:
        """Run steps in the browser in a thread beside the serving event loop."""
        return await asyncio.to_thread(steps, BrowserPage(self.driver, self.site))


@pytest.fixture(scope="session")
def _browser() -> Iterator[Chrome]:
    with skipping("Chromium", instead="PATH"):
        chromium = find_program("chromium", "chromium-browser", package="chromium")
        program = find_program("chromedriver", package="chromium-driver")
        driver = start_browser(str(chromium), str(program))
    yield driver
    driver.quit()


@pytest.fixture
async def visit(_browser: Chrome, sqlite_url: str, redis_url: str) -> AsyncIterator[BrowserVisit]:
    settings = app_settings(sqlite_url, redis_url, api_port=0)
    async with harness(settings) as made:
        await make_account(made.database, company="Pier", email=OWNER, password=PASSWORD)
        session = await made.call("POST", "/auth", json={"email": OWNER, "password": PASSWORD})
        token = session.json()["session"]["token"]
        server, stop = api_server(made.app, settings), asyncio.Event()
        serving = asyncio.create_task(server.serve_until(stop))
        site = f"http://127.0.0.1:{server.port}"
        _browser.delete_all_cookies()
        _browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        yield BrowserVisit(made, site, {"x-service-key": OWNER, "x-service-token": token}, _browser)
        _browser.get("about:blank")
        stop.set()
        await serving


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
        *(f"{device}/held", "/company", "/connector", "/statistics", "/audit", "/nowhere"),
    ]


def sign_in(page: BrowserPage) -> None:
    page.open("/")
    page.fill("E-mail", OWNER)
    page.fill("Password", PASSWORD)
    page.press(Keys.ENTER)
    page.wait_for_text("What does not send now, and why")
