"""A page in a real browser, used as people use it: by what they read, with pointer and keys."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

_AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
_PAUSE_SECONDS = 0.05
_DEADLINE_SECONDS = 30.0
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    # Requests of a page to other hosts fail.
    "--host-resolver-rules=MAP pier.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1280,900",
)


def start_browser(chromium: str, driver: str) -> Chrome:
    """Debian's chromium, without a window; the caller quits it."""
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return Chrome(options=options, service=ChromeService(driver))


class BrowserPage:
    """One site in one browser."""

    def __init__(self, driver: Chrome, site: str) -> None:
        self.driver = driver
        self._site = site

    def open(self, path: str) -> None:
        """Open an address."""
        self.driver.get(self._site + path)

    def click(self, text: str) -> None:
        """Click the button, the link or the box with this label."""
        quoted = json.dumps(text)
        names = "self::a or self::button or self::summary or self::label"
        path = f"//*[{names}][normalize-space()={quoted}]"
        self._act(lambda: self.driver.find_element(By.XPATH, path).click(), text)

    def fill(self, label: str, text: str) -> None:
        """Replace the text of the field with this label."""

        def type_it() -> None:
            field = self.field(label)
            field.clear()
            field.send_keys(text)

        self._act(type_it, label)

    def choose(self, label: str, option: str) -> None:
        """Choose from a list."""
        self._act(lambda: Select(self.field(label)).select_by_visible_text(option), label)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def field(self, label: str) -> WebElement:
        """The field with this label, as a screen reader finds it."""
        quoted = json.dumps(label)
        # (What is required has a star.)
        named = f'//label[normalize-space()=({quoted}) or normalize-space()={quoted[:-1]} *"]'
        found = self.driver.find_elements(By.XPATH, f"//*[@id={named}/@for]")
        path = f"//*[starts-with(@aria-label, {quoted})]"
        return found[0] if found else self.driver.find_element(By.XPATH, path)

    def wait_for_text(self, text: str) -> None:
        """Wait until the text is visible."""
        self.until(lambda: text in self.text, f"{text!r} to be read")

    @property
    def text(self) -> str:
        """The visible text."""
        return self.driver.find_element(By.TAG_NAME, "body").text

    @property
    def focused(self) -> str:
        """The focused element: its text, its label or its name."""
        found = self.driver.switch_to.active_element
        label = found.get_attribute("aria-label") or found.get_attribute("name")
        return found.text or label or found.tag_name

    def until(self, holds: Callable[[], Any], what: str) -> None:
        """Wait until the condition holds; meanwhile the page may be replaced."""
        wait = WebDriverWait(self.driver, _DEADLINE_SECONDS, _PAUSE_SECONDS, [WebDriverException])
        try:
            wait.until(lambda _: holds())
        except TimeoutException:
            raise AssertionError(f"waited for {what}; there is:\n{self.text}") from None

    def wait_until_idle(self) -> None:
        """Wait until every part of the page is loaded."""
        pending = "return document.querySelectorAll('.wait, .htmx-request').length === 0"
        self.until(lambda: self.driver.execute_script(pending), "the parts of the page")

    def drag(self, element: WebElement, right: int, down: int) -> None:
        """Drag an element by so many pixels."""
        ActionChains(self.driver).drag_and_drop_by_offset(element, right, down).perform()

    def unit(self) -> float:
        """The pixels of one unit of the venue's plan."""
        wide = "return document.querySelector('.plan').getScreenCTM().a"
        return float(self.driver.execute_script(wide))

    def set_viewport(self, *, width: int, dark: bool) -> None:
        """Emulate a screen width, and the light or dark colour scheme."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def findings(self) -> list[str]:
        """The violations that axe-core finds."""
        # (By the protocol: the page's own policy lets no other script in.)
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": _AXE})
        run = "axe.run(document, {resultTypes: ['violations']}).then(arguments[0])"
        found = self.driver.execute_async_script(run)
        return [
            f"{each['id']}: {node['html'][:200]} ({node['failureSummary']})"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def is_too_wide(self) -> bool:
        """Whether the page scrolls horizontally."""
        wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.driver.execute_script(wide))

    def complaints(self) -> list[str]:
        """The browser's log: errors, and violations of the content security policy.

        (It also has refused requests, which the tests check as pages.)
        """
        entries: list[dict[str, Any]] = self.driver.get_log("browser")
        messages = [each["message"] for each in entries if each["level"] in ("SEVERE", "WARNING")]
        return [each for each in messages if "responded with a status of 4" not in each]

    def _act(self, action: Callable[[], None], what: str) -> None:
        def act() -> bool:
            action()
            return True

        self.until(act, f"{what!r} to be used")
