"""The first steps of each test of the console: a company with data, and the sign-in."""

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import OWNER, BrowserVisit
from tests.browser.page import BrowserPage
from tests.browser.world import World
from tests.integration.api.harness import PASSWORD


@pytest.fixture
async def world(visit: BrowserVisit) -> World:
    return await World(visit).fill()


def sign_in(page: BrowserPage) -> None:
    page.open("/")
    page.fill("E-mail", OWNER)
    page.fill("Password", PASSWORD)
    page.press(Keys.ENTER)
    page.wait_for_text("What does not send now, and why")
