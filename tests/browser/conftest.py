"""The console in this process on a real port, and Debian's chromium as the browser."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple, TypeVar

import pytest
from selenium.webdriver import Chrome

from engine.wiring.api import api_server
from tests.api.harness import PASSWORD, Harness, Headers, app_settings, harness
from tests.api.process import make_account
from tests.browser.page import BrowserPage, start_browser
from tests.servers.missing import skipping
from tests.servers.process import find_program
from tests.servers.schema import make_schema

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
    await make_schema(sqlite_url)
    async with harness(settings, with_console=True) as made:
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
