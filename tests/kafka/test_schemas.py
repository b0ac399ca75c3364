"""The published schemas are those of the types, and say what is accepted."""

from pathlib import Path
from typing import Any

import jsonschema
import orjson

from engine.kafka.schemas import documents
from tests.rules.records import campaign
from tests.trigger.samples import granted, written

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas"


def test_the_published_files_are_the_generated_ones():
    assert {path.name: path.read_text() for path in PUBLISHED.iterdir()} == documents()


def validator(name: str) -> Any:
    schema = orjson.loads((PUBLISHED / f"{name}.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_messages_match_the_published_schemas():
    both = granted(campaign(), campaign(id=8, format="connector", content=None))
    notification, call = (orjson.loads(each.value or b"") for each in written(both))
    validator("notifications").validate(notification)
    validator("connector-calls").validate(call)
