"""Types of settings. Each checks its value, so that nothing is opened with an invalid one."""

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    HttpUrl,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from catalog.database import parse_database_url
from catalog.redis_connection import check_redis_url

# The name of each format of detections, and its meaning (engine/formats/decoders.py reads them).
FORMATS = {
    "own": "this project's own detections (docs/schemas/detections.schema.json)",
    "minew": "Minew gateways, JSON arrays",
    "theengs": "Theengs Gateway and OpenMQTTGateway",
    "owntracks": "OwnTracks, _type beacon, location and transition",
    "radar": "Radar's webhooks, user.entered_geofence",
    "espresense": "ESPresense, espresense/devices/<id>/<room>",
    "mist": "Juniper Mist webhooks asset-raw-rssi and discovered-raw-rssi",
    "kontakt": "Kontakt.io gateways' events of version 3 and 4",
    "kontakt-cloud": "telemetry of Kontakt.io's cloud (Kio Cloud)",
    "avro": "this project's own detections in Avro, Confluent's wire format",
    "protobuf": "the same in Protobuf",
    "json-schema": "the same in JSON, after the id of a JSON Schema",
}
# The formats that need SCHEMA_REGISTRY_URL.
REGISTERED_FORMATS = frozenset({"avro", "protobuf", "json-schema"})
_ENVELOPE = "cloudevents+"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_TOPICS = "accepted: topic=format, comma-separated"
_HIGHEST_PORT = 65535
_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"\s*([0-9.]+)\s*(ms|s|m|h|d|)\s*", re.ASCII | re.IGNORECASE)


class DetectionTopic(NamedTuple):
    """A topic of detections. `format` is a name of FORMATS; with `in_cloudevents` each record is a
    CloudEvent around it."""

    name: str
    format: str = "own"
    in_cloudevents: bool = False

    def __str__(self) -> str:
        """The topic as the setting writes it."""
        return f"{self.name}={_ENVELOPE * self.in_cloudevents}{self.format}"


def setting(default: Any, meaning: str, *, unit: str = "", **bounds: Any) -> Any:
    """A field of Settings."""
    if unit:
        bounds["json_schema_extra"] = {"unit": unit}
    return Field(default, description=meaning, **bounds)


def refused(text: str) -> PydanticCustomError:
    """The error of settings that do not go together; `text` is the whole message."""
    return PydanticCustomError("setting", "{text}", {"text": text})


def _check_bootstrap_servers(servers: str) -> str:
    from aiokafka.conn import collect_hosts

    given = ",".join(_parts(servers))
    try:
        hosts = collect_hosts(given, randomize=False)
    except ValueError:
        hosts = []
    is_good = all(host and 0 < port <= _HIGHEST_PORT for host, port, _ in hosts)
    if not hosts or not is_good or "/" in given or "@" in given:
        raise ValueError(f"{servers[:80]!r}: accepted: host:port, comma-separated")
    return given


def _check_http_url(url: str, *, login: bool = False) -> str:
    """Raise ValueError if an HTTP client cannot use the URL; the message never holds it."""
    try:
        parts = HttpUrl(url)
    except ValidationError:
        is_good = False
    else:
        has_login = bool(parts.username or parts.password)
        is_good = url.isascii() and " " not in url and not parts.fragment and login >= has_login
    if not is_good:
        accepted = f"{'[user:password@]' * login}host[:port][/path]"
        raise ValueError(f"accepted: http:// or https://, {accepted}, escaped where needed")
    return url


def _secret_url(check: Callable[[str], object]) -> AfterValidator:
    def checked(value: SecretStr) -> SecretStr:
        check(value.get_secret_value())
        return value

    return AfterValidator(checked)


def _check_extensions(pairs: tuple[str, ...]) -> tuple[str, ...]:
    """Names and values must be as in RFC 7628; the name `auth` is reserved for the token."""
    for pair in pairs:
        if not re.fullmatch(r"(?!auth=)[A-Za-z]+=[\x20-\x7e]+", pair):
            accepted = "a name of letters, a value of printable characters"
            raise ValueError(f"accepted: name=value, comma-separated; {accepted}")
    return pairs


def _split(value: object) -> object:
    return tuple(_parts(value)) if isinstance(value, str) else value


def _split_topics(value: object) -> object:
    if not isinstance(value, str):
        return value
    topics = [_topic(part) for part in _parts(value)]
    names = [topic.name for topic in topics]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} has two formats; {_TOPICS}")
    return tuple(topics)


def _topic(text: str) -> DetectionTopic:
    name, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{text[:80]!r} is no topic with its format; {_TOPICS}")
    bare = written.removeprefix(_ENVELOPE)
    if bare not in FORMATS:
        raise ValueError(
            f"{written[:80]!r} is no format; formats: {', '.join(FORMATS)}; in CloudEvents: "
            f"{_ENVELOPE}<format>"
        )
    return DetectionTopic(name, bare, in_cloudevents=bare != written)


def _seconds(value: object) -> object:
    """Seconds, of a number or a duration such as `5m`."""
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value)
    try:
        number, unit = found.groups() if found else ("", "")
        return float(number) * _UNITS[unit.lower()]
    except ValueError:
        accepted = "accepted: seconds, or a number with ms, s, m, h or d, such as 5m"
        raise ValueError(f"{value[:80]!r} is no duration; {accepted}") from None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_IN_SECONDS: dict[str, Any] = {"unit": "s"}
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, json_schema_extra=_IN_SECONDS)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=_HIGHEST_PORT)]
BootstrapServers = Annotated[str, AfterValidator(_check_bootstrap_servers)]
RedisUrl = Annotated[SecretStr, _secret_url(check_redis_url)]
EndpointUrl = Annotated[str, AfterValidator(_check_http_url)]
RegistryUrl = Annotated[SecretStr, _secret_url(partial(_check_http_url, login=True))]
DatabaseUrl = Annotated[SecretStr, _secret_url(parse_database_url)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], BeforeValidator(_split)]
TopicPrefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,200}$")]
DetectionTopics = Annotated[tuple[DetectionTopic, ...], BeforeValidator(_split_topics)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split)]
Extensions = Annotated[Texts, AfterValidator(_check_extensions)]
