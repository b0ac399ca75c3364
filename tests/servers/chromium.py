"""Chromium and its driver, as the machine has them."""

from tests.servers.process import find_program


def chromium() -> str:
    """The browser. Raises ServerMissingError."""
    return str(find_program("chromium", "chromium-browser", package="chromium"))


def chromedriver() -> str:
    """The program that drives it. Raises ServerMissingError."""
    return str(find_program("chromedriver", package="chromium-driver"))
