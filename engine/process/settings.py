"""Every setting, with its default and meaning. Prefix `PROXIMITY_` in the environment.

Each type checks its value, so that nothing is opened with an invalid one.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    HttpUrl,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    model_validator,
)

from catalog.database import parse_database_url
from catalog.redis_connection import check_redis_url

PREFIX = "PROXIMITY_"
_OF_A_PASSWORD = ("kafka_sasl_username", "kafka_sasl_password")
_OF_OAUTH = tuple(
    f"kafka_sasl_oauth_{name}" for name in ("token_url", "client_id", "client_secret")
)
_OTHER_TOPICS = ("authentications", "notifications", "presence", "connector-calls", "dead-letters")
# The formats that need SCHEMA_REGISTRY_URL; then all of them (docs/formats.md).
REGISTERED_FORMATS = ("avro", "protobuf", "json-schema")
FORMATS = (
    *("own", "minew", "theengs", "owntracks", "radar", "espresense", "mist", "kontakt"),
    *("kontakt-cloud", *REGISTERED_FORMATS),
)
_ENVELOPE = "cloudevents+"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_TOPICS = "accepted: topic=format, comma-separated"
_HIGHEST_PORT = 65535
_SHORTEST_PASSPHRASE = 16
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


def _secret(check: Callable[[str], object]) -> AfterValidator:
    def checked(value: SecretStr) -> SecretStr:
        check(value.get_secret_value())
        return value

    return AfterValidator(checked)


def _check_keys(keys: str) -> None:
    """Each is long enough to be a passphrase; a Fernet key is longer (catalog/secrets.py)."""
    for number, key in enumerate(_parts(keys), start=1):
        if len(key) < _SHORTEST_PASSPHRASE:
            raise ValueError(
                f"key {number} is too weak; accepted: a Fernet key, or a passphrase of "
                f"{_SHORTEST_PASSPHRASE} characters or more, as `openssl rand -base64 32` prints"
            )


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
    if len({topic.name for topic in topics}) < len(topics):
        raise ValueError(f"a topic has two formats; {_TOPICS}")
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
RedisUrl = Annotated[SecretStr, _secret(check_redis_url)]
EndpointUrl = Annotated[str, AfterValidator(_check_http_url)]
RegistryUrl = Annotated[SecretStr, _secret(partial(_check_http_url, login=True))]
DatabaseUrl = Annotated[SecretStr, _secret(parse_database_url)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], BeforeValidator(_split)]
TopicPrefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,200}$")]
DetectionTopics = Annotated[tuple[DetectionTopic, ...], BeforeValidator(_split_topics)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split)]
Extensions = Annotated[Texts, AfterValidator(_check_extensions)]


class Settings(BaseModel):
    """The settings of one process. Durations are in seconds unless the name says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kafka_bootstrap_servers: BootstrapServers = setting(
        "localhost:9092", "host:port, comma-separated"
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = setting(
        "PLAINTEXT", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        setting("PLAIN", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
    )
    kafka_sasl_username: str | None = setting(None, "SASL user")
    kafka_sasl_password: SecretStr | None = setting(None, "SASL password")
    kafka_sasl_oauth_token_url: EndpointUrl | None = setting(
        None, "https://host/path, the OIDC provider's token endpoint; for OAUTHBEARER"
    )
    kafka_sasl_oauth_client_id: str | None = setting(None, "client id of the token request")
    kafka_sasl_oauth_client_secret: SecretStr | None = setting(None, "secret of this client")
    kafka_sasl_oauth_scope: str | None = setting(
        None, "scope of the token, if the provider needs one"
    )
    kafka_sasl_oauth_extensions: Extensions = setting(
        (), "SASL extensions that the brokers need: name=value, comma-separated"
    )
    kafka_ssl_cafile: FilePath | None = setting(
        None,
        "PEM file that verifies the brokers, and the token endpoint if no known authority does",
    )
    kafka_ssl_certfile: FilePath | None = setting(None, "PEM client certificate")
    kafka_ssl_keyfile: FilePath | None = setting(None, "PEM key of the client certificate")
    kafka_ssl_password: SecretStr | None = setting(None, "password of the key file")
    kafka_session_timeout: Seconds = setting(
        10.0, "time without a heartbeat after which the group removes a member"
    )
    topic_prefix: TopicPrefix = setting("proximity.", "prefix of every topic name")
    topic_partitions: int = setting(
        6, "partitions of the topics that a starting role creates", ge=1, le=10_000
    )
    topic_replication: int = setting(
        -1, "replicas of created topics; -1: the broker's default", ge=-1, le=15
    )
    detection_topics: DetectionTopics = setting(
        (),
        "more topics with detections, or another format for <prefix>detections: "
        "topic=format, comma-separated; docs/formats.md lists the formats",
    )
    schema_registry_url: RegistryUrl | None = setting(
        None,
        "http:// or https://, [user:password@]host; for the formats avro, protobuf and json-schema",
    )
    schema_registry_ca_file: FilePath | None = setting(
        None, "PEM file that verifies the schema registry"
    )
    group_prefix: str = setting("proximity-", "prefix of every consumer group")

    redis_url: RedisUrl = setting(
        SecretStr("redis://localhost:6379/0"),
        "redis://, rediss://, redis+cluster:// or redis+sentinel://; rediss is TLS",
    )
    redis_prefix: str = setting("proximity:", "prefix of every Redis key")
    database_url: DatabaseUrl = setting(
        SecretStr("sqlite:///proximity.sqlite3"), "postgresql:// or sqlite:///"
    )
    database_pool: int = setting(16, "most connections of a process to PostgreSQL", ge=2, le=1000)
    secret_key: Annotated[SecretStr | None, _secret(_check_keys)] = setting(
        None,
        "key that encrypts connector parameters at rest; to rotate it: the new key, a comma, "
        "the old key",
    )

    metrics_host: str = setting("127.0.0.1", "address of the metrics ports")
    metrics_port: Port = setting(9464, "port of metrics and health, one for all workers; 0: any")
    otel_endpoint: EndpointUrl | None = setting(
        None, "OTLP collector over HTTP that gets the spans of sampled traces; needs the extra otel"
    )
    api_host: str = setting("127.0.0.1", "address of the management interface")
    api_port: Port = setting(8000, "port of the management interface")
    api_metrics_port: Port = setting(9463, "metrics port of the management interface; 0: any")
    api_trusted_proxies: Networks = setting(
        (), "networks of proxies whose X-Forwarded-For is trusted, comma-separated"
    )
    api_cors_origins: Texts = setting(
        (), "origins whose pages may call the interface, comma-separated"
    )
    console: bool = setting(True, "serve the console at /console beside the management interface")
    api_max_body: int = setting(
        1024 * 1024, "most bytes of a request's body", unit="bytes", ge=1024
    )
    campaign_content_bytes: int = setting(
        65_536, "most bytes of a campaign's texts together", unit="bytes", ge=1024
    )
    venue_campaigns: Count = setting(1000, "most campaigns of a venue")
    venue_beacons: Count = setting(10_000, "most beacons of a venue")
    company_geofences: Count = setting(10_000, "most geofences of a company")
    beacon_open_campaigns: Count = setting(
        100, "most active campaigns of a beacon whose dates overlap"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "debug, info, warning or error"
    )
    log_format: Literal["json", "console", "auto"] = setting(
        "auto", "json, console, or auto: console on a terminal"
    )

    max_detection_age: Seconds = setting(
        300.0,
        "a detection that is older, or further in the future, triggers nothing; at most a week",
        le=7 * 86_400,  # the index keeps the content of an ended campaign for longer
    )
    notification_lifetime: Seconds = setting(
        300.0, "time from detected_at to a notification's expires_at"
    )
    path_loss_exponent: float = setting(2.0, "n in the formula from rssi to distance", gt=0, le=10)

    batch_records: Count = setting(
        5000, "most records in a batch (trigger: 2,000); four times as many may be in flight"
    )
    in_flight_bytes: int = setting(
        64 * 1024 * 1024,
        "bytes of records in flight at which the trigger pauses fetching; it composes messages "
        "in pieces of a small part of it",
        unit="bytes",
        ge=1024 * 1024,
    )
    delivery: Literal["at_least_once", "exactly_once"] = setting(
        "at_least_once",
        "at_least_once; or exactly_once: one Kafka transaction a batch, for consumers "
        "that read committed",
    )
    drain_timeout: Seconds = setting(20.0, "time to finish the records in flight at shutdown")
    recent_decisions: int = setting(
        10,
        "last decisions of each device, without repeats, kept in Redis for a day; 0: none",
        ge=0,
        le=100,
    )
    dead_letter_share: float = setting(
        0.5,
        "a role stops when records fail for more than this share of the last 1000 keys that "
        "succeeded before, or for 1000 keys while no record succeeds for 10 s; 1: never",
        gt=0,
        le=1,
    )

    trace: Literal["all", "changes", "none"] = setting(
        "all",
        "detections that get a trace row: all; changes (of the zone at a beacon, and one a "
        "minute); none",
    )
    trace_retention: int = setting(
        30, "days for which traces and receptions are kept", unit="days", ge=1, le=3650
    )

    connector_allow_networks: Networks = setting(
        (), "networks that connectors may call besides public ones, comma-separated"
    )
    connector_ca_file: FilePath | None = setting(
        None, "PEM file of authorities that verify connectors, besides the well-known ones"
    )
    connector_call_timeout: Seconds = setting(3.0, "time for a whole call to a connector")
    connector_company_calls: Count = setting(32, "most calls of a company in flight")
    connector_calls: Count = setting(512, "most calls of a process in flight")

    @model_validator(mode="after")
    def _detection_topics(self) -> Self:
        of_the_engine = {f"{self.topic_prefix}{name}" for name in _OTHER_TOPICS}
        for topic in self.detection_topics:
            if topic.name in of_the_engine:
                name = variable_name("detection_topics")
                raise ValueError(f"{name}: {topic.name} has other messages")
            if topic.format in REGISTERED_FORMATS and self.schema_registry_url is None:
                raise ValueError(f"{variable_name('schema_registry_url')} is required by {topic}")
        return self

    @model_validator(mode="after")
    def _kafka_security(self) -> Self:
        given = {name for name in self.model_fields_set if getattr(self, name)}
        has_sasl = "SASL" in self.kafka_security_protocol
        has_tls = self.kafka_security_protocol.endswith("SSL")
        has_oauth = self.kafka_sasl_mechanism == "OAUTHBEARER"
        protocol = f"KAFKA_SECURITY_PROTOCOL {self.kafka_security_protocol}"
        mechanism = f"KAFKA_SASL_MECHANISM {self.kafka_sasl_mechanism}"
        no_effect = [
            ("kafka_sasl_", has_sasl, f"{protocol}: set it to SASL_SSL or SASL_PLAINTEXT"),
            ("kafka_ssl_", has_tls, f"{protocol}: set it to SSL or SASL_SSL"),
            ("kafka_sasl_oauth_", has_oauth, f"{mechanism}: set it to OAUTHBEARER"),
            *((name, not has_oauth, mechanism) for name in _OF_A_PASSWORD),
        ]
        for name in (name for name in type(self).model_fields if name in given):
            for prefix, has_effect, reason in no_effect:
                if name.startswith(prefix) and not has_effect:
                    raise ValueError(f"{variable_name(name)} has no effect with {reason}")
        required = [(name, mechanism) for name in _OF_OAUTH if has_oauth]
        required += [(name, protocol) for name in _OF_A_PASSWORD if has_sasl and not has_oauth]
        required += [("kafka_ssl_certfile", "KAFKA_SSL_KEYFILE")] * bool(self.kafka_ssl_keyfile)
        for name, reason in required:
            if name not in given:
                raise ValueError(f"{variable_name(name)} is required by {reason}")
        return self


def unit_of(name: str) -> str:
    """The unit of a setting's value: s, bytes or days; empty without a unit."""
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def variable_name(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()
