"""The setting DETECTION_TOPICS: which topics hold detections, and in which format each."""

import re
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

# The name of each format, and its meaning. engine/kafka/formats has a module of the same name, to
# be imported when a topic has the format (docs/decisions/0076).
FORMATS = {
    "own": "this project's own detections (docs/schemas/detections.schema.json)",
    "minew": "Minew gateways, JSON arrays",
    "theengs": "Theengs Gateway and OpenMQTTGateway",
    "owntracks": "OwnTracks, _type beacon",
    "espresense": "ESPresense, espresense/devices/<id>/<room>",
    "mist": "Juniper Mist webhooks asset-raw-rssi and discovered-raw-rssi",
    "kontakt": "Kontakt.io gateways' events of version 3 and 4",
    "kontakt-cloud": "telemetry of Kontakt.io's cloud (Kio Cloud)",
    "avro": "this project's own detections in Avro, Confluent's wire format",
    "protobuf": "the same in Protobuf",
    "json-schema": "the same in JSON, after the id of a JSON Schema",
}
# The formats that need SCHEMA_REGISTRY_URL. Their modules have `compiled` instead of `read`.
REGISTERED_FORMATS = frozenset({"avro", "protobuf", "json-schema"})
_ENVELOPE = "cloudevents+"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_ACCEPTED = "accepted: topic=format, comma-separated"


class DetectionTopic(NamedTuple):
    """A topic of detections. `format` is a name of FORMATS; with `in_cloudevents` each record is a
    CloudEvent around it."""

    name: str
    format: str = "own"
    in_cloudevents: bool = False

    def __str__(self) -> str:
        """The topic as the setting writes it."""
        return f"{self.name}={_ENVELOPE * self.in_cloudevents}{self.format}"


def parse_detection_topics(value: object) -> object:
    """The topics that the setting's text names; another type is returned as it is.

    Raises ValueError.
    """
    if not isinstance(value, str):
        return value
    topics = [_topic(part.strip()) for part in value.split(",") if part.strip()]
    names = [topic.name for topic in topics]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} has two formats; {_ACCEPTED}")
    return tuple(topics)


def _topic(text: str) -> DetectionTopic:
    name, equals, format_ = text.partition("=")
    name, format_ = name.strip(), format_.strip()
    if not equals or not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{text[:80]!r} is no topic with its format; {_ACCEPTED}")
    bare = format_.removeprefix(_ENVELOPE)
    if bare not in FORMATS:
        raise ValueError(
            f"{format_[:80]!r} is no format; formats: {', '.join(FORMATS)}; in CloudEvents: "
            f"{_ENVELOPE}<format>"
        )
    return DetectionTopic(name, bare, in_cloudevents=bare != format_)


DetectionTopics = Annotated[
    tuple[DetectionTopic, ...], NoDecode, BeforeValidator(parse_detection_topics)
]
