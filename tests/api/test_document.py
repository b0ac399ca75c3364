"""The OpenAPI document and its page."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.api.harness import Harness


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def openapi(api: Harness) -> dict[str, Any]:
    return api.app.openapi()


def test_each_operation_has_a_name_of_its_own(openapi: dict[str, Any]) -> None:
    names = [each["operationId"] for path in openapi["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)
    assert {"authenticate", "create_venue", "list_campaigns"} <= set(names)


def test_each_body_has_an_example_that_fits(openapi: dict[str, Any]) -> None:
    bodies = [
        each["requestBody"]["content"]["application/json"]
        for path in openapi["paths"].values()
        for each in path.values()
        if "requestBody" in each
    ]
    assert len(bodies) == 25
    for body in bodies:
        validator = Draft202012Validator(body["schema"] | {"components": openapi["components"]})
        assert [error.message for error in validator.iter_errors(body["example"])] == []


async def test_a_browser_is_led_to_the_page(api: Harness) -> None:
    answer = await api.client.get("/", follow_redirects=True)
    assert answer.url.path == "/docs"
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    parts = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert len(parts) == 3
    for part in parts:
        assert (await api.client.get(part)).status_code == 200
