"""The language of the pages; every text is there in every language."""

import string
from typing import get_args

import pytest

from api.console.pages.statistics import PERIODS
from api.console.texts import LANGUAGES, read_texts
from api.reports import ROLES, AwaitedCheck
from connectors.model import CallFault
from rules.model import Reason
from tests.console.visitor import Visitor

KINDS = ("venue", "beacon", "geofence", "nfc", "qrcode")
# Texts whose keys are put together.
MADE = {
    *(f"{kind}_{each.value}" for each in Reason for kind in ("reason", "check", "state")),
    *(f"line_{state}" for state in ("new", "changed", "same", "faulty")),
    *(f"period_{period}" for period in PERIODS),
    *(f"{verb}_{kind}" for verb in ("new", "delete", "kind") for kind in KINDS),
    *(f"outcome_{fault.value}" for fault in CallFault),
    *(f"{kind}_{role}" for role in ROLES for kind in ("role", "silent", "never")),
    *(f"role_{state}" for state in ("up_to_date", "behind", "starting", "waiting")),
    *(f"waits_{check}" for check in get_args(AwaitedCheck)),
} - {"check_granted", "state_granted"}


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_says_the_same(language: str) -> None:
    english, words = read_texts("en"), read_texts(language)
    assert words.keys() == english.keys()
    assert set() == MADE - words.keys()
    for key, text in words.items():
        assert text.strip(), key
        assert places(text) == places(english[key]), key


@pytest.mark.parametrize(
    ("named", "language", "word"),
    [
        ("", "en", "Overview"),
        ("de", "de", "Übersicht"),
        ("fr-CA,en;q=0.5", "fr", "Aperçu"),
        ("nl, es;q=0.8, en;q=0.7", "es", "Resumen"),
        ("x" * 9000 + ",de", "en", "Overview"),
    ],
)
async def test_the_browsers(visitor: Visitor, named: str, language: str, word: str):
    page = await visitor.get("", accept_language=named)
    assert page.tags[0] == ("html", {"lang": language})
    assert word in page.texts
