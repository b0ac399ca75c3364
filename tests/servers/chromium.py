"""Chromium and its driver, as the machine has them."""

import shutil

from tests.servers.missing import ServerMissingError


def chromium() -> str:
    """The browser. Raises ServerMissingError."""
    return _found(("chromium", "chromium-browser"), "install chromium")


def chromedriver() -> str:
    """The program that drives it. Raises ServerMissingError."""
    return _found(("chromedriver",), "install chromium-driver")


def _found(names: tuple[str, ...], remedy: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise ServerMissingError(f"{names[0]} is not on PATH; {remedy}")
    return found
