"""Every setting, with its default and meaning. Prefix `PROXIMITY_` in the environment."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, FilePath, SecretStr, model_validator

from engine.process.settings_types import (
    REGISTERED_FORMATS,
    BootstrapServers,
    Count,
    DatabaseUrl,
    DetectionTopics,
    EndpointUrl,
    Extensions,
    Networks,
    Port,
    RedisUrl,
    RegistryUrl,
    Seconds,
    Texts,
    TopicPrefix,
    refused,
    setting,
)

PREFIX = "PROXIMITY_"
_OF_A_PASSWORD = ("kafka_sasl_username", "kafka_sasl_password")
_OF_OAUTH = tuple(
    f"kafka_sasl_oauth_{name}" for name in ("token_url", "client_id", "client_secret")
)
_OTHER_TOPICS = ("authentications", "notifications", "connector-calls", "dead-letters")


class Settings(BaseModel):
    """The settings of one process. Durations are in seconds unless the name says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    # Longest time (s) that a broker delays the answer to a fetch when it has no new records.
    fetch_wait: ClassVar[float] = 0.1

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
    secret_key: SecretStr | None = setting(
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
        65_536, "most bytes of a campaign's texts, nfcs and qrcodes together", unit="bytes", ge=1024
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
        5000, "most records in a batch; four times as many may be in flight"
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
    connector_ca_file: Path | None = setting(
        None, "PEM file of authorities that verify connectors, besides the well-known ones"
    )
    connector_call_timeout: Seconds = setting(3.0, "time for a whole call to a connector")
    connector_company_calls: Count = setting(32, "most calls of a company in flight")
    connector_calls: Count = setting(512, "most calls of a process in flight")

    @property
    def in_flight_records(self) -> int:
        """Records in flight (fetched and not finished) at which fetching pauses."""
        return 4 * self.batch_records

    @model_validator(mode="after")
    def _ports(self) -> Self:
        for name in ("metrics_port", "api_metrics_port"):
            if self.api_port and self.api_port == getattr(self, name):
                both = f"{variable_name(name)}: {self.api_port} is {variable_name('api_port')} too"
                raise refused(f"{both}: choose another")
        return self

    @model_validator(mode="after")
    def _detection_topics(self) -> Self:
        of_the_engine = {f"{self.topic_prefix}{name}" for name in _OTHER_TOPICS}
        for topic in self.detection_topics:
            if topic.name in of_the_engine:
                name = variable_name("detection_topics")
                raise refused(f"{name}: {topic.name} has other messages")
            if topic.format in REGISTERED_FORMATS and self.schema_registry_url is None:
                raise refused(f"{variable_name('schema_registry_url')} is required by {topic}")
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
                    raise refused(f"{variable_name(name)} has no effect with {reason}")
        required = [(name, mechanism) for name in _OF_OAUTH if has_oauth]
        required += [(name, protocol) for name in _OF_A_PASSWORD if has_sasl and not has_oauth]
        required += [("kafka_ssl_certfile", "KAFKA_SSL_KEYFILE")] * bool(self.kafka_ssl_keyfile)
        for name, reason in required:
            if name not in given:
                raise refused(f"{variable_name(name)} is required by {reason}")
        return self


def unit_of(name: str) -> str:
    """The unit of a setting's value: s, bytes or days; empty without a unit."""
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def variable_name(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()
