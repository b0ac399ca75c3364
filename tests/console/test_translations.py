"""The language of the pages; every text is there in every language."""

import re
import string
from importlib.resources import files
from typing import get_args

import pytest

from api.console.pages.statistics import PERIODS
from api.console.texts import LANGUAGES, read_texts
from api.reports import ROLES, AwaitedCheck
from connectors.model import CallFault
from rules.model import Reason
from tests.console.visitor import SITE, Visitor

FOLDERS = (files("api.console"), *(files("api.console") / name for name in ("templates", "pages")))
SOURCES = [
    each.read_text()
    for folder in FOLDERS
    for each in folder.iterdir()
    if each.name.endswith((".html", ".py"))
]
KINDS = ("venue", "beacon", "geofence", "nfc", "qrcode")
USED = {
    *re.findall(r'\b(?:w|texts|words)\("([a-z_]+?)"[,)]', "".join(SOURCES)),
    *(f"{kind}_{reason.value}" for reason in Reason for kind in ("reason", "check")),
    *(f"state_{reason.value}" for reason in Reason if reason is not Reason.GRANTED),
    *("monday", "friday", "day", "detections"),
    *(f"line_{state}" for state in ("new", "changed", "same", "faulty")),
    *(f"period_{period}" for period in PERIODS),
    *(
        f"{n}_{name}"
        for n in ("one", "some")
        for name in ("beacons", "geofencings", "nfcs", "qrcodes")
    ),
    *(f"{verb}_{kind}" for verb in ("new", "delete") for kind in KINDS),
    *(f"outcome_{fault.value}" for fault in CallFault),
    *(f"{kind}_{role}" for role in ROLES for kind in ("role", "silent", "never")),
    *(f"role_{state}" for state in ("up_to_date", "behind", "starting", "waiting")),
    *(f"waits_{check}" for check in get_args(AwaitedCheck)),
} - {"check_granted"}


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_used_text_exists() -> None:
    known = read_texts("en")
    assert len(USED) > 150
    assert USED - set(known) == set()


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_says_the_same(language: str) -> None:
    english, words = read_texts("en"), read_texts(language)
    assert words.keys() == english.keys()
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


async def test_the_chosen_one(visitor: Visitor):
    headers = {"origin": SITE, "accept-language": "fr"}
    answer = await visitor.client.post(
        "/console/language", data={"language": "de"}, headers=headers
    )
    assert answer.status_code == 303
    assert "httponly" in answer.headers["set-cookie"].lower()
    page = await visitor.get("", accept_language="fr")
    assert "Übersicht" in page.texts
    await visitor.client.post("/console/language", data={"language": "../x"}, headers=headers)
    assert "Übersicht" in (await visitor.get("")).texts
    from_elsewhere = {"origin": "https://evil.example"}
    answer = await visitor.client.post(
        "/console/language", data={"language": "es"}, headers=from_elsewhere
    )
    assert answer.status_code == 403
