"""The published schemas are those of the types, and say what is accepted."""

from typing import Any

import jsonschema
import orjson

from docs.write_schemas import DIRECTORY, documents
from tests.rules.records import campaign
from tests.trigger.samples import granted, written


def test_the_published_files_are_the_generated_ones():
    assert {path.name: path.read_text() for path in DIRECTORY.iterdir()} == documents()


def validator(name: str) -> Any:
    schema = orjson.loads((DIRECTORY / f"{name}.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_messages_match_the_published_schemas():
    both = granted(campaign(), campaign(id=8, format="connector", content=None))
    notification, call = (orjson.loads(each.value or b"") for each in written(both))
    validator("notifications").validate(notification)
    validator("connector-calls").validate(call)
