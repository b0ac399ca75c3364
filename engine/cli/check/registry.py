"""Checks the schema registry, if a topic needs one: its answers, and its kinds of schemas."""

import msgspec

from engine.cli.check.finding import Finding, bad, ok
from engine.process.detection_topics import REGISTERED_FORMATS
from engine.process.errors import SchemaRegistryError
from engine.process.failures import describe
from engine.process.settings import Settings
from engine.process.settings_display import shown

_PART = "Schema registry"
_FOUND = 200
_decode = msgspec.json.Decoder(list[str]).decode


async def check_registry(settings: Settings) -> list[Finding]:
    """Check the registry. Bounded by SCHEMA_REGISTRY_TIMEOUT."""
    url = settings.schema_registry_url
    if url is None or not any(
        topic.format in REGISTERED_FORMATS for topic in settings.detection_topics
    ):
        return []
    from engine.kafka.errors import UnreadableSchemaError
    from engine.kafka.registry_request import RegistryAddress

    where, secret = shown(url), url.get_secret_value()
    deadline, ca_file = settings.schema_registry_timeout, settings.schema_registry_ca_file
    address = RegistryAddress(secret, ca_file=ca_file, deadline=deadline)
    try:
        answer = await address.get("/schemas/types")
        kinds = _decode(answer.body) if answer.status == _FOUND else []
    except (OSError, TimeoutError, SchemaRegistryError, UnreadableSchemaError) as error:
        return [bad(_PART, "reachable", f"{where}: {describe(error)}")]
    except msgspec.DecodeError:
        return [bad(_PART, "reachable", f"{where} answers, and is no schema registry")]
    if answer.status != _FOUND:
        return [bad(_PART, "reachable", f"{where} answers with status {answer.status}")]
    return [ok(_PART, "reachable", f"{where}, {', '.join(sorted(kinds))}")]
