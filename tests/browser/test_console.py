"""The first task of each kind of user, in a real browser, by clicking and typing.

With PROXIMITY_TEST_FULL=1 every page is examined at phone and desktop width, by day and by night;
else every second one in one of these.
"""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from api.reports import LiveDecision, LiveOutcome
from engine.redis.decisions import TailStore
from rules.model import Zone
from tests.api.harness import PASSWORD
from tests.browser.conftest import OWNER, BrowserVisit, World, pages, sign_in
from tests.browser.page import BrowserPage
from tests.console.visitor import detected
from tests.servers.waiting import eventually

FULL = "PROXIMITY_TEST_FULL" in os.environ
VIEWPORTS = [(1280, False), (390, True), (1280, True), (390, False)]
pytestmark = pytest.mark.timeout(300)
# How often it sends the form of a page.
_CLICK_TWICE = """
let sent = 0;
addEventListener("submit", (event) => { sent += !event.defaultPrevented; });
const button = document.querySelector("form button.main");
button.click();
button.click();
return sent;
"""


async def test_a_marketer_makes_a_campaign(visit: BrowserVisit, world: World):
    def steps(page: BrowserPage) -> None:
        sign_in(page)
        page.click("Campaigns")
        page.wait_for_text("Last boat")
        page.click("New campaign")
        page.fill("Name", "Ferry")
        page.fill("Title", "The ferry is here")
        page.fill("Text", "Board now")
        page.fill("Pause", "2")
        page.fill("Tags", "study")
        finder = page.driver.find_element(By.CSS_SELECTOR, "[data-finder=beacons] input")
        finder.send_keys("quay")
        page.wait_for_text("0 chosen · 1 / 2")
        page.click("Quay study")
        page.wait_for_text("1 chosen · 1 / 2")
        page.choose("Format", "HTML page")
        page.fill("HTML page", "<b>All aboard</b>")
        page.press(Keys.TAB)
        page.driver.switch_to.frame("on-phone")
        page.wait_for_text("The ferry is here\nBoard now\nAll aboard")
        page.driver.switch_to.default_content()
        page.choose("Format", "Link")
        page.fill("Link", "no link")
        page.press(Keys.TAB)
        assert page.driver.find_elements(By.CSS_SELECTOR, "#url:user-invalid")
        page.fill("Link", "https://pier.example/ferry")
        page.choose("Unit", "hours")
        page.choose("Sent on", "a visit that lasts")
        page.fill("Minutes", "10")
        page.fill("From", "22:00")
        page.fill("To", "02:00")
        page.click("Save")
        page.wait_for_text("Created: Ferry.")
        page.wait_for_text("Would it fire?")
        page.click("Campaigns")
        page.wait_for_text("Ferry")
        names = (By.CSS_SELECTOR, "#list tbody td:first-child")
        for expected in (["Ferry", "Last boat"], ["Last boat", "Ferry"]):
            page.click("Name")
            cells = [each.text for each in page.driver.find_elements(*names)]
            assert cells == expected
        page.driver.find_element(By.CSS_SELECTOR, "[type=search]").send_keys("ferr")
        page.wait_for_text("1–1 of 1")
        assert page.complaints() == []

    await visit.walk(steps)
    path = f"/lieu/{world.ids['venue']}/campaign"
    _, made = (await visit.harness.call("GET", path, visit.headers)).json()
    assert [each["name"] for each in made["beacons"]] == ["Quay"]
    facts = made["name"], made["start_time"], made["tags"][0]["name"]
    assert facts == ("Ferry", "22:00", "study")


async def test_a_reader_sees_what_a_phone_shows(visit: BrowserVisit, world: World):
    reader = await visit.harness.colleague(visit.headers, campaign=1)
    session = {"name": "proximity_session", "value": reader["x-service-token"]}

    def steps(page: BrowserPage) -> None:
        page.open("/console/sign-in")
        page.driver.add_cookie(session | {"path": "/console"})
        page.open(f"/console/venues/{world.ids['venue']}/campaigns/{world.ids['campaign']}")
        assert not page.field("Name").is_enabled()
        page.driver.switch_to.frame("on-phone")
        page.wait_for_text("Six o'clock")

    await visit.walk(steps)


async def test_a_venue_manager_places_beacons(visit: BrowserVisit, world: World, tmp_path: Path):
    sheet = tmp_path / "beacons.csv"
    sheet.write_bytes("name\nCafé".encode("windows-1252"))
    stall = world.bodies.beacon(name="Stall", x=None, y=None)
    await world.visitor.made(f"/region/{world.ids['venue']}/beacon", stall)

    def steps(page: BrowserPage) -> None:
        sign_in(page)
        page.click("Venues")
        page.click("Pier")
        page.click("Beacons")
        page.click("New beacon")
        page.fill("Name", "Kiosk")
        page.fill("UUID", "f7826da6-4fa2-4e98-8024-bc5b71e0893e")
        page.fill("Major", "7")
        page.fill("Minor", "9")
        assert page.driver.execute_script(_CLICK_TWICE) == 1
        page.wait_for_text("Created: Kiosk")
        page.click("Plan")
        page.wait_for_text("Not on the plan yet")
        # From the tray by pointer, but not beside the plan; or in the form, to which a click leads.
        stall, tray = page.driver.find_elements(By.CSS_SELECTOR, "[data-tray]")
        page.drag(stall, 0, 5)
        page.drag(stall, 100, -150)
        page.wait_for_text("Stall: Placed. x")
        tray.click()
        page.fill("x", "15")
        page.fill("y", "7")
        page.click("Save")
        page.wait_for_text("Saved: Kiosk")
        page.click("Plan")
        page.wait_for_text("Drag a beacon to its place.")
        assert not page.driver.find_elements(By.CSS_SELECTOR, "[data-tray]")
        page.drag(page.field("Kiosk"), round(5 * page.unit()), 0)
        page.wait_for_text("Kiosk: Placed. x 20, y 7")
        before = page.unit()
        page.click("+")
        page.until(lambda: page.unit() > 1.4 * before, "a larger plan")
        page.field("Kiosk").click()
        page.until(lambda: page.field("x").get_attribute("value") == "20", "the form")
        page.open(f"/console/venues/{world.ids['venue']}/beacons/import")
        page.driver.find_element(By.ID, "csv-file").send_keys(str(sheet))
        text = page.driver.find_element(By.ID, "csv")
        page.until(lambda: text.get_attribute("value") == "name\nCafé", "the file's text")
        assert page.complaints() == []

    await visit.walk(steps)
    path = f"/region/{world.ids['venue']}/beacon"
    made = (await visit.harness.call("GET", path, visit.headers)).json()[-1]
    assert (made["name"], made["x"], made["y"]) == ("Kiosk", 20, 7)


async def test_by_keyboard_alone(visit: BrowserVisit, world: World):
    """On plain HTTP of a network address, where browsers send no Sec-Fetch-Site."""
    visit = visit._replace(site=visit.site.replace("127.0.0.1", "pier.test"))

    def steps(page: BrowserPage) -> None:
        page.open("/console/sign-in")
        page.until(lambda: page.focused == "email", "the focus on the first field")
        page.press(*OWNER, Keys.TAB, *PASSWORD, Keys.TAB, Keys.ENTER)
        page.wait_for_text("What does not send now, and why")
        page.wait_until_idle()
        page.press(Keys.TAB)
        assert page.focused == "Skip to the page"
        seen = []
        for _ in range(15):
            page.press(Keys.TAB)
            seen.append(page.focused)
        assert seen[:4] == ["Proximity", "Overview", "Live", "Campaigns"]
        assert {"Sign out", "Last boat"} <= set(seen)

    await visit.walk(steps)


@pytest.mark.parametrize("viewport", range(4) if FULL else range(1))
async def test_every_page_is_for_everybody(visit: BrowserVisit, world: World, viewport: int):
    """axe-core finds nothing, nothing has to be moved sideways, the policy forbids nothing."""
    addresses = pages(world.ids) if FULL else pages(world.ids)[1::2]

    def steps(page: BrowserPage) -> dict[str, Any]:
        faults = {}
        page.set_viewport(width=VIEWPORTS[viewport][0], dark=VIEWPORTS[viewport][1])
        page.open("/console/sign-in")
        faults["sign-in"] = page.findings()
        sign_in(page)
        for place, address in enumerate(addresses):
            if not FULL:
                width, dark = VIEWPORTS[place % 4]
                page.set_viewport(width=width, dark=dark)
            page.open(f"/console{address}")
            page.wait_until_idle()
            faults[address] = page.findings()
            if page.is_too_wide():
                faults[address].append("too wide")
        faults["log"] = page.complaints()
        return {address: found for address, found in faults.items() if found}

    assert await visit.walk(steps) == {}


async def test_an_operator_watches(
    visit: BrowserVisit, world: World, monkeypatch: pytest.MonkeyPatch
):
    # A page that is loaded again shows what is a few seconds old: a busy machine takes longer.
    monkeypatch.setattr("engine.redis.decisions._BACK_SECONDS", 300.0)
    monkeypatch.setattr("engine.redis.decisions._LEASE_MS", 300_000)
    company = await world.visitor.api.company_of(visit.headers)
    watcher = f"company-{company}"
    store = TailStore(redis=visit.harness.stores.redis, prefix="proximity:", deadline=10.0)

    async def is_over() -> bool:
        return not await store.watchers()

    def watch(page: BrowserPage) -> None:
        sign_in(page)
        page.click("Live")
        page.wait_for_text("Watching")

    def read(page: BrowserPage) -> None:
        page.wait_for_text("sent near Door, Pier Last boat: sent")
        page.wait_for_text("more were not shown.")
        page.choose("Campaign", "Last boat")
        page.choose("Reason", "sent")
        # Equal ones of a second are one, with their count.
        page.wait_for_text("2 sent near Door, Pier")
        # A banner as long as the interface is away.
        page.driver.set_network_conditions(offline=True, latency=0, throughput=0)
        page.wait_for_text("The interface does not answer.")
        page.driver.delete_network_conditions()
        page.until(lambda: "does not answer" not in page.text, "the banner to go by itself")
        complaints = page.complaints()
        assert all("live/feed" in each or "htmx:" in each for each in complaints), complaints
        page.click("Pause")
        page.until(lambda: "Watching" not in page.text, "the pause")

    await visit.walk(watch)
    await eventually(store.watchers)
    at, outcomes = time.time(), [LiveOutcome(world.ids["campaign"], "Last boat", "granted")]
    decision = LiveDecision(at, at, company, "Pier", "Door", Zone.NEAR, "granted", outcomes, 3)
    for _ in range(2):
        await store.write({watcher: [decision]})
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
