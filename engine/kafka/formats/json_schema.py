"""This project's own detection as JSON behind the id of a JSON Schema.

The schema itself is not applied, as in Confluent's own consumers by default: a detection is held
to this project's schema, which is stricter (docs/schemas/detections.schema.json).
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
