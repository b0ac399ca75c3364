"""Data for the console: a venue, a campaign, a device and their figures; and the sign-in."""

from datetime import UTC, datetime, timedelta

import pytest
from selenium.webdriver.common.keys import Keys

from engine.redis.figures import CompanyDay, FigureStore
from tests.api.harness import PASSWORD, Bodies
from tests.browser.conftest import OWNER, BrowserVisit
from tests.browser.page import BrowserPage
from tests.console.visitor import Visitor, device_of, statistic


class World:
    """Records of one company, created through the interface."""

    def __init__(self, visit: BrowserVisit) -> None:
        self.visitor = Visitor(visit.harness, visit.headers)
        self.bodies = Bodies()
        self.ids: dict[str, int] = {}

    async def fill(self) -> "World":
        made, bodies, ids = self.visitor.made, self.bodies, self.ids
        venue = bodies.venue(name="Pier", image=None, width=30, height=12)
        ids["venue"] = await made("/region", venue | {"time_zone": "Europe/Paris"})
        where = f"/region/{ids['venue']}"
        ids["beacon"] = await made(f"{where}/beacon", bodies.beacon(name="Door", x=5, y=5))
        await made(f"{where}/beacon", bodies.beacon(name="Quay", x=20, y=8, active=False))
        await made(f"{where}/geofencing", bodies.geofence())
        campaign = bodies.campaign(name="Last boat", format="html", html="<h1>Six o'clock</h1>")
        ids["campaign"] = await made(f"/lieu/{ids['venue']}/campaign", campaign)
        ids["device"] = await device_of(self.visitor, "anna")
        today = datetime.now(UTC).date()
        async with self.visitor.api.database.write.begin() as session:
            session.add_all(
                statistic(
                    today - timedelta(days=back), kind, ids[kind], ids["venue"], (100 + back, 20, 7)
                )
                for back in range(10)
                for kind in ("venue", "beacon", "campaign")
            )
        await self._decided()
        return self

    async def _decided(self) -> None:
        """Write sums of triggers for today and yesterday."""
        company = await self.visitor.api.company_of(self.visitor.headers)
        redis = self.visitor.api.stores.redis
        store = FigureStore(redis=redis, prefix="proximity:", deadline=10.0)
        today = datetime.now(UTC).date()
        for back, times in ((0, 4), (1, 5)):
            sums = {f"d:{hour}": times * (hour + 1) for hour in range(24)}
            sums |= {f"n:{hour}": times for hour in range(8, 20)}
            sums |= {"r:outside_hours": 10 * times, "r:too_far": 2 * times, "r:granted": 7}
            sums[f"c:{self.ids['campaign']}:outside_hours"] = 10 * times
            await store.add({CompanyDay(company, today - timedelta(days=back)): sums})

    def addresses(self) -> list[str]:
        own = f"/venues/{self.ids['venue']}"
        return [
            "",
            "/live",
            f"{own}/campaigns/{self.ids['campaign']}",
            f"{own}/campaigns/new",
            "/venues",
            own,
            f"{own}/edit",
            f"{own}/campaigns",
            f"{own}/beacons",
            f"{own}/beacons/import",
            f"{own}/beacons/{self.ids['beacon']}",
            f"{own}/geofences/new",
            "/devices",
            f"/devices/{self.ids['device']}",
            f"/devices/{self.ids['device']}/held",
            "/company",
            "/connector",
            "/statistics",
            "/audit",
            "/audit/deleted",
            "/nowhere",
        ]


@pytest.fixture
async def world(visit: BrowserVisit) -> World:
    return await World(visit).fill()


def sign_in(page: BrowserPage) -> None:
    page.open("/")
    page.fill("E-mail", OWNER)
    page.fill("Password", PASSWORD)
    page.press(Keys.ENTER)
    page.wait_for_text("What does not send now, and why")
