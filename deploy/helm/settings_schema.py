"""The settings of the product as JSON Schema, as the chart's values name them."""

from typing import Any

from engine.process.settings import Settings
from engine.process.settings_sources import secret_settings

Json = dict[str, Any]

# What the chart sets itself: its probes, services and policies stand on them.
OF_THE_CHART = frozenset(
    {
        "metrics_host",
        "metrics_port",
        "api_host",
        "api_port",
        "api_metrics_port",
        "log_format",
    }
)
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KEPT = ("type", "enum", *_LIMITS, "description")


def settings_schema() -> Json:
    """Every setting that a person may set in the values; secrets are not among them."""
    secrets = frozenset(secret_settings())
    properties = Settings.model_json_schema()["properties"]
    names = [name for name in Settings.model_fields if name not in secrets | OF_THE_CHART]
    return _object({name.upper(): _property(properties[name]) for name in names})


def secret_keys_schema() -> Json:
    """The key of each secret setting."""
    key = {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"}
    return _object({name.upper(): key for name in secret_settings()}) | {"minProperties": 1}


def _property(schema: Json) -> Json:
    given = next(
        (each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema
    ) | {"description": schema["description"]}
    kept = {name: given[name] for name in _KEPT if name in given}
    if schema.get("unit") == "s":
        kept["type"] = ["number", "string"]  # a duration such as 5m
    # A list is written with commas, as in the environment.
    return kept | {"type": "string"} if kept["type"] == "array" else kept


def _object(properties: Json) -> Json:
    return {"type": "object", "additionalProperties": False, "properties": properties}
