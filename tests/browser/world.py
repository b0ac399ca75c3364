"""What the console is looked at with: a venue, a campaign, a device and their figures."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from catalog.models import Account, Statistic
from tests.browser.conftest import OWNER, BrowserVisit
from tests.integration.api.bodies import Bodies
from tests.integration.console.visitor import Visitor, device_of

NOW = datetime.now(UTC)


class World:
    """Of one company, made as the interface makes it."""

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
        async with self.visitor.api.database.write.begin() as session:
            session.add_all(
                Statistic(
                    day=NOW.date() - timedelta(days=back),
                    kind=kind,
                    ref=ids[kind],
                    venue_id=ids["venue"],
                    detections=100 + back,
                    devices=20,
                    notifications=7,
                )
                for back in range(10)
                for kind in ("venue", "beacon", "campaign")
            )
        return self

    async def company(self) -> int:
        query = select(Account.company_id).where(Account.email == OWNER)
        async with self.visitor.api.database.read() as session:
            return int(await session.scalar(query) or 0)

    def addresses(self) -> list[str]:
        own = f"/venues/{self.ids['venue']}"
        return [
            "",
            "/live",
            "/campaigns",
            f"{own}/campaigns/{self.ids['campaign']}",
            f"{own}/campaigns/new",
            "/venues",
            own,
            f"{own}/edit",
            f"{own}/beacons/{self.ids['beacon']}",
            f"{own}/geofences/new",
            "/devices",
            f"/devices/{self.ids['device']}",
            f"/devices/{self.ids['device']}/held",
            "/connector",
            "/statistics",
            "/audit",
            "/nowhere",
        ]
