"""Decodes this project's own detection from JSON that follows the id of a JSON Schema.

The message is not validated against that schema, as in Confluent's own consumers by default, but
against this project's schema, which is stricter (docs/schemas/detections.schema.json).
"""

import msgspec

from engine.kafka.formats.registered import Decode
from engine.kafka.schema_registry import RegisteredSchema

KIND = "JSON"
FORM = None
INDEXED = False

_decode = msgspec.json.Decoder().decode


def compiled(_schema: RegisteredSchema) -> Decode:
    """The decoder of a schema's messages."""
    return _decode
