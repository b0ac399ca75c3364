"""The language of the pages: the browser's, until another is chosen."""

import pytest

from tests.integration.console.visitor import SITE, Visitor


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
