"""The examples match the document's schemas, and its operations have plain names."""

import re
from importlib.resources import files
from typing import Any

import orjson
import pytest
from jsonschema import Draft4Validator

from api.openapi import examples
from api.openapi.document import document
from tests.integration.api.harness import Harness


@pytest.fixture
def openapi(api: Harness) -> dict[str, Any]:
    return document(api.app, "0")


def _operations(openapi: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for path in openapi["paths"].values() for each in path.values()]


def _contents(openapi: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The JSON of each answer, with its status."""
    return [
        (int(status), answer["content"]["application/json"])
        for each in _operations(openapi)
        for status, answer in each["responses"].items()
    ]


def _draft4(schema: Any) -> Any:
    """OpenAPI's `nullable` in JSON Schema's words."""
    if isinstance(schema, list):
        return [_draft4(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _draft4(value) for key, value in schema.items() if key != "example"}
    return {"anyOf": [plain, {"type": "null"}]} if plain.pop("nullable", False) else plain


def test_each_operation_has_a_plain_name_of_its_own(openapi: dict[str, Any]) -> None:
    names = [each["operationId"] for each in _operations(openapi)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)
    assert {"authenticate", "create_venue", "list_campaigns"} <= set(names)


def test_a_session_begins_and_ends_in_one_place(openapi: dict[str, Any]) -> None:
    assert {tag for each in openapi["paths"]["/v2/auth"].values() for tag in each["tags"]} == {
        "session"
    }


def test_each_error_is_shown_as_it_comes(openapi: dict[str, Any]) -> None:
    errors = [(status, definition) for status, definition in _contents(openapi) if status >= 400]
    assert errors
    for status, content in errors:
        assert content["example"]["code"] == status
        assert _faults(openapi, content["schema"], content["example"]) == []


def test_each_record_has_an_example_that_fits(openapi: dict[str, Any]) -> None:
    schemas = openapi["components"]["schemas"]
    shown = {name: schema["example"] for name, schema in schemas.items() if "example" in schema}
    for name, example in shown.items():
        assert _faults(openapi, schemas[name], example) == [], name
    named = {
        content["schema"].get("items", content["schema"])["$ref"].rpartition("/")[2]
        for status, content in _contents(openapi)
        if status < 300
    }
    assert named - set(shown) == {"Done"}


def _faults(openapi: dict[str, Any], schema: Any, example: Any) -> list[str]:
    root = _draft4(schema) | {"components": _draft4(openapi["components"])}
    return [error.message for error in Draft4Validator(root).iter_errors(example)]


async def test_a_browser_is_led_to_the_page(api: Harness) -> None:
    answer = await api.client.get("/", follow_redirects=True)
    assert answer.url.path == "/docs"
    assert answer.status_code == 200


async def test_without_the_console_there_is_none(api: Harness) -> None:
    assert (await api.client.get("/console")).status_code == 404


def test_the_examples_are_of_the_demo_and_new_to_it() -> None:
    raw = files("engine.cli.demo").joinpath("data/catalog.json").read_bytes()
    (company,) = orjson.loads(raw)["companies"]
    (venue,) = company["venues"]
    assert examples.VENUE["name"] == venue["name"]
    assert examples.CREDENTIALS["email"] == company["accounts"][0]["email"]
    assert examples.CAMPAIGN["name"] in {each["name"] for each in venue["campaigns"]}
    assert examples.CONNECTOR["name"] == company["connector"]["name"]
    taken = {(each["uuid"], each["major"], each["minor"]) for each in venue["beacons"]}
    assert {uuid for uuid, _, _ in taken} == {examples.BEACON["uuid"]}
    assert (
        examples.BEACON["uuid"],
        examples.BEACON["major"],
        examples.BEACON["minor"],
    ) not in taken
