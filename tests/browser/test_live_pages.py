"""The live pages of the console, in a real browser."""

import time

import pytest
from selenium.webdriver.common.by import By

from api.reports import LiveDecision, LiveOutcome
from engine.redis.decisions import TailStore
from rules.model import Zone
from tests.browser.conftest import BrowserVisit, World, sign_in
from tests.browser.page import BrowserPage
from tests.console.visitor import detected
from tests.servers.waiting import eventually

pytestmark = pytest.mark.timeout(300)


async def test_an_operator_watches(visit: BrowserVisit, world: World):
    company = await world.visitor.api.company_of(visit.headers)
    watcher = f"company-{company}"
    store = TailStore(redis=visit.harness.stores.redis, prefix="proximity:", deadline=10.0)

    async def decide(venue: str) -> None:
        at = time.time()
        outcomes = [LiveOutcome(world.ids["campaign"], "Last boat", "granted")]
        decision = LiveDecision(at, at, company, venue, "Door", Zone.NEAR, "granted", outcomes, 3)
        await store.write({watcher: [decision]})

    async def is_over() -> bool:
        return not await store.watchers()

    def watch(page: BrowserPage) -> None:
        sign_in(page)
        page.click("Live")
        page.wait_for_text("Watching")

    def read(page: BrowserPage) -> None:
        # Equal rows are one, with their count.
        page.wait_for_text("2 sent near Door, Pier Last boat: sent")
        page.wait_for_text("6 more were not shown.")
        page.choose("Campaign", "Last boat")
        page.click("Sent only")
        page.wait_for_text("2 sent near Door, Pier")
        # A banner as long as the interface is away.
        page.driver.set_network_conditions(offline=True, latency=0, throughput=0)
        page.wait_for_text("The interface does not answer.")
        page.driver.delete_network_conditions()
        page.until(lambda: "does not answer" not in page.text, "the banner to go by itself")
        assert all("live/feed" in each for each in page.complaints())
        page.click("Pause")
        page.wait_for_text("Paused")

    await visit.walk(watch)
    await eventually(store.watchers)
    await decide("Pier")
    await decide("Pier")
    await visit.walk(read)
    # No more requests are sent, so nobody watches after five seconds.
    await eventually(is_over, what="nobody watches")
    assert await visit.walk(lambda page: page.complaints()) == []


async def test_a_venue_manager_sees_the_last_minutes(visit: BrowserVisit, world: World):
    async def detect(count: int) -> None:
        await detected(world.visitor, world.ids["venue"], {world.ids["beacon"]: count})

    def steps(page: BrowserPage) -> None:
        sign_in(page)
        page.click("Venues")
        page.click("Pier")
        page.wait_for_text("The last 15 minutes")
        page.wait_for_text("41 detections since")
        halo = page.driver.find_element(By.CSS_SELECTOR, ".dot .halo")
        page.until(lambda: halo.rect["width"] > 30, "the circle around the beacon")
        page.drag(page.field("Door"), round(2 * page.unit()), 0)
        page.wait_for_text("Door: Placed. x 7, y 5")

    def recreated(page: BrowserPage) -> None:
        page.wait_for_text("50 detections since")
        assert page.complaints() == []

    await detect(41)
    await visit.walk(steps)
    await detect(9)
    await visit.walk(recreated)
