"""Every word that a page uses is there, in every language."""

import re
import string
import tomllib
from importlib.resources import files
from typing import get_args

import pytest

from api.console.translations import LANGUAGES, load_translations
from api.records.role import ROLES, AwaitedCheck
from connectors.model import CallFault
from rules.model import Reason

PLACE = files("api.console")
TEMPLATES = sorted(
    each.read_text()
    for each in PLACE.joinpath("templates").iterdir()
    if each.name.endswith(".html")
)
USED = {
    *re.findall(r'\bw\("([a-z_]+?)"[,)]', "".join(TEMPLATES)),
    *(f"{kind}_{reason.value}" for reason in Reason for kind in ("reason", "check")),
    *(f"state_{reason.value}" for reason in Reason if reason is not Reason.GRANTED),
    *("monday", "friday", "day", "detections"),
    *(f"outcome_{fault.value}" for fault in CallFault),
    *(f"{kind}_{role}" for role in ROLES for kind in ("role", "silent", "never")),
    *(f"role_{state}" for state in ("up_to_date", "behind", "starting", "waiting")),
    *(f"waits_{check}" for check in get_args(AwaitedCheck)),
    *(f"service_{state}" for state in ("closed", "open", "half_open")),
} - {"check_granted"}


def keys(language: str) -> dict[str, str]:
    return tomllib.loads(PLACE.joinpath("translations", f"{language}.toml").read_text())


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_used_text_exists() -> None:
    known = keys("en")
    assert len(USED) > 150
    assert USED - set(known) == set()


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_says_the_same(language: str) -> None:
    english, words = keys("en"), keys(language)
    assert words.keys() == english.keys()
    for key, text in words.items():
        assert text.strip(), key
        assert places(text) == places(english[key]), key


def test_an_unknown_name_is_shown_unchanged() -> None:
    words = load_translations("en")
    assert words.get("reason_of_tomorrow") == "reason_of_tomorrow"
    assert words("opens_today", clock="09:00") == "Opens today at 09:00"
