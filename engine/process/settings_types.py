"""Types of settings. Each checks its value, so that nothing is opened with an invalid one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, SecretStr
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

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
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,200}", re.ASCII)
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


def _check_http_url(url: str, accepted: str, *, login: bool = False) -> None:
    """Raise ValueError if an HTTP client cannot use the URL; the message never holds it."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise ValueError(f"cannot be read; accepted: {accepted}") from None
    is_complete = parts.scheme in ("http", "https") and parts.hostname and not parts.fragment
    if not is_complete or (not login and "@" in parts.netloc):
        raise ValueError(f"accepted: {accepted}")
    if not url.isascii() or any(each <= " " for each in url):
        raise ValueError(f"has characters that must be escaped; accepted: {accepted}")


def _check_endpoint(url: str) -> str:
    _check_http_url(url, "http:// or https://, host[:port][/path], without a password")
    return url


def _check_registry_url(url: str) -> None:
    accepted = "http:// or https://, [user:password@]host[:port][/path]"
    _check_http_url(url, accepted, login=True)
    if "?" in url:
        raise ValueError(f"accepted: {accepted}")


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


def _check_readable(path: Path) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


def _check_topic_prefix(prefix: str) -> str:
    if not _TOPIC_PREFIX.fullmatch(prefix):
        raise ValueError(f"{prefix[:80]!r}: Kafka takes letters, digits, dots, _ and -, up to 200")
    return prefix


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
EndpointUrl = Annotated[str, AfterValidator(_check_endpoint)]
RegistryUrl = Annotated[SecretStr, _secret_url(_check_registry_url)]
DatabaseUrl = Annotated[SecretStr, _secret_url(parse_database_url)]
ReadableFile = Annotated[Path, AfterValidator(_check_readable)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_split)]
TopicPrefix = Annotated[str, AfterValidator(_check_topic_prefix)]
DetectionTopics = Annotated[tuple[DetectionTopic, ...], NoDecode, BeforeValidator(_split_topics)]
Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Extensions = Annotated[Texts, AfterValidator(_check_extensions)]
