"""Every setting, with its default and meaning. Prefix `PROXIMITY_` in the environment."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.process.detection_topics import REGISTERED_FORMATS, DetectionTopics
from engine.process.settings_checks import (
    BootstrapServers,
    DatabaseUrl,
    Networks,
    ReadableFile,
    RedisUrl,
    RegistryUrl,
    Texts,
    kafka_security_fault,
)

PREFIX = "PROXIMITY_"
_OTHER_TOPICS = ("authentications", "notifications", "connector-calls", "dead-letters")


class Settings(BaseSettings):
    """What one process is told. Durations are seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    kafka_bootstrap_servers: BootstrapServers = Field(
        "localhost:9092", description="host:port, comma-separated"
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "PLAIN", description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
    )
    kafka_sasl_username: str | None = Field(None, description="SASL user")
    kafka_sasl_password: SecretStr | None = Field(None, description="SASL password")
    kafka_ssl_cafile: ReadableFile | None = Field(
        None, description="PEM file that verifies the brokers"
    )
    kafka_ssl_certfile: ReadableFile | None = Field(None, description="PEM client certificate")
    kafka_ssl_keyfile: ReadableFile | None = Field(
        None, description="PEM key of the client certificate"
    )
    kafka_ssl_password: SecretStr | None = Field(None, description="password of the key file")
    kafka_request_timeout: float = Field(
        20.0, gt=0, description="deadline of one request to a broker"
    )
    kafka_session_timeout: float = Field(
        10.0, gt=0, description="silence after which the group gives a member up"
    )
    kafka_fetch_wait: float = Field(
        0.5, gt=0, description="how long a broker may hold the answer when it has nothing new"
    )
    topic_prefix: str = Field("proximity.", description="in front of every topic name")
    detection_topics: DetectionTopics = Field(
        (),
        description="topics of detections beside <prefix>detections, or another format for it: "
        "topic=format, comma-separated; the formats are those of docs/formats.md",
    )
    schema_registry_url: RegistryUrl | None = Field(
        None, description="http:// or https://, [user:password@]host; for avro and its kin"
    )
    schema_registry_timeout: float = Field(
        5.0, gt=0, description="deadline of one request to the schema registry"
    )
    schema_registry_ca_file: ReadableFile | None = Field(
        None, description="PEM file that verifies the schema registry"
    )
    topic_partitions: int = Field(
        6, ge=1, le=10_000, description="partitions of the topics that a start has to create"
    )
    topic_replication: int = Field(
        -1, ge=-1, le=15, description="replicas of created topics; -1: the broker's default"
    )
    group_prefix: str = Field("proximity-", description="in front of every consumer group")

    redis_url: RedisUrl = Field(
        SecretStr("redis://localhost:6379/0"),
        description="redis://, rediss:// or redis+cluster://",
    )
    redis_prefix: str = Field("proximity:", description="in front of every Redis key")
    redis_timeout: float = Field(5.0, gt=0, description="deadline of one call to Redis")
    database_url: DatabaseUrl = Field(
        SecretStr("sqlite:///proximity.sqlite3"), description="postgresql:// or sqlite:///"
    )
    secret_key: SecretStr | None = Field(
        None,
        description="encrypts connector parameters at rest; several, comma-separated, to rotate",
    )

    metrics_host: str = Field("127.0.0.1", description="address of the metrics port")
    metrics_port: int = Field(
        9464, ge=0, le=65535, description="first worker's port; the next ones count up; 0: any"
    )
    api_host: str = Field("127.0.0.1", description="address of the management interface")
    api_port: int = Field(8000, ge=0, le=65535, description="port of the management interface")
    api_metrics_port: int = Field(
        9463, ge=0, le=65535, description="metrics port of the management interface; 0: any"
    )
    api_metrics_host: str = Field(
        "127.0.0.1", description="address of the management interface's metrics port"
    )
    api_trusted_proxies: Networks = Field(
        (), description="networks whose X-Forwarded-For is believed, comma-separated"
    )
    api_cors_origins: Texts = Field(
        (), description="sites whose pages may call the interface, comma-separated"
    )
    api_max_body: int = Field(1024 * 1024, ge=1024, description="bytes of a request's body")
    campaign_content_bytes: int = Field(
        65_536, ge=1024, description="of a campaign's texts, nfcs and qrcodes together"
    )
    venue_campaigns: int = Field(1000, ge=1, description="campaigns of a venue")
    venue_beacons: int = Field(10_000, ge=1, description="beacons of a venue")
    beacon_open_campaigns: int = Field(
        100, ge=1, description="active campaigns of a beacon whose dates overlap"
    )
    api_body_timeout: float = Field(15.0, gt=0, description="for a request's body to arrive")
    api_answer_timeout: float = Field(
        30.0, gt=0, description="for an answer to begin, and then for each piece of it"
    )
    api_list_timeout: float = Field(
        600.0, gt=0, description="for a whole answer, however long a list it is"
    )
    api_connections: int = Field(
        500, ge=1, description="connections to the management interface at once"
    )
    api_head_timeout: float = Field(
        10.0, gt=0, description="for a request's head, from its first byte"
    )
    api_idle_timeout: float = Field(
        30.0, gt=0, description="for which a connection may be open with no request"
    )
    login_attempts_account: int = Field(
        10,
        ge=1,
        description="failed logins of an account from one network in LOGIN_WINDOW, then 429 there",
    )
    login_window: float = Field(300.0, gt=0, description="over which failed logins are counted")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error"
    )
    log_format: Literal["json", "console", "auto"] = Field(
        "auto", description="json, console, or auto: console on a terminal"
    )

    max_detection_age: float = Field(
        300.0,
        gt=0,
        le=7 * 86_400,  # the index keeps what an ended campaign sends for longer
        description="older, or as far in the future, triggers nothing; at most a week",
    )
    clock_skew_limit: float = Field(
        30.0, gt=0, description="seconds by which clocks of servers may differ without an error"
    )
    notification_lifetime: float = Field(
        300.0, gt=0, description="from detected_at to a notification's expires_at"
    )
    path_loss_exponent: float = Field(
        2.0, gt=0, le=10, description="n of the rssi to distance formula"
    )

    batch_records: int = Field(
        5000, ge=1, description="most records that one step of a partition takes"
    )
    in_flight_records: int = Field(
        20_000, ge=1, description="records fetched and not finished at which fetching pauses"
    )
    in_flight_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024 * 1024,
        description="bytes of them at which the trigger stops fetching; messages are composed in "
        "pieces of a small part of it",
    )
    commit_interval: float = Field(
        0.0, ge=0, description="least time between two offset commits; 0: what is done, at once"
    )
    delivery: Literal["at_least_once", "exactly_once"] = Field(
        "at_least_once",
        description="at_least_once; or exactly_once: one Kafka transaction a batch, for consumers "
        "that read committed",
    )
    transactional_producers: int = Field(
        100, ge=1, description="partitions of a process with DELIVERY=exactly_once"
    )
    drain_timeout: float = Field(20.0, gt=0, description="to finish what is begun when stopping")
    index_cache_beacons: int = Field(200_000, ge=1, description="beacons remembered per process")
    index_cache_bytes: int = Field(
        128 * 1024 * 1024,
        ge=1024,
        description="bytes of what campaigns send that are remembered with them",
    )
    index_cache_age: float = Field(300.0, gt=0, description="a remembered beacon is read again")
    held_claims: int = Field(
        250_000, ge=1, description="claims (of a campaign on a device) remembered per process"
    )
    dead_letter_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of 1000 keys understood before that fail now, past which a role stops; "
        "1: never",
    )
    dead_letter_run: int = Field(
        1000,
        ge=1,
        description="different keys that fail, with no good record for 10 s, at which a role "
        "stops; above 100000: never",
    )

    trace: Literal["all", "changes", "none"] = Field(
        "all",
        description="detections that leave a trace row: all; changes of the zone at a beacon, and "
        "one a minute; none",
    )
    trace_retention: int = Field(
        30, ge=1, le=3650, description="days for which traces and receptions are kept"
    )
    recorder_timeout: float = Field(
        30.0, gt=0, description="deadline of one transaction of the recorder"
    )

    connector_allow_networks: Networks = Field(
        (), description="networks a connector may lead to besides public ones, comma-separated"
    )

    connector_ca_file: Path | None = Field(
        None, description="PEM file of authorities that verify connectors, besides the known ones"
    )
    connector_connect_timeout: float = Field(
        1.0, gt=0, description="to look a connector's name up and connect to it, TLS included"
    )
    connector_call_timeout: float = Field(3.0, gt=0, description="for a whole call to a connector")
    connector_reply_bytes: int = Field(
        65_536, ge=1, description="a connector's reply is read up to so many bytes"
    )
    connector_reply_steps: int = Field(
        1000, ge=1, description="events of the parser, reads and header lines that a reply may take"
    )
    connector_company_calls: int = Field(32, ge=1, description="calls of a company in flight")
    connector_calls: int = Field(512, ge=1, description="calls of a process in flight")
    connector_pending: int = Field(
        50_000, ge=2, description="calls a process holds; one company may hold half of them"
    )
    connector_tries: int = Field(3, ge=1, description="tries of a call, while it is fresh")
    connector_breaker_window: int = Field(
        20, ge=1, description="last calls of a company that its breaker looks at"
    )
    connector_breaker_failures: int = Field(
        10, ge=1, description="failures among them at which it opens"
    )
    connector_breaker_pause: float = Field(
        10.0, gt=0, description="how long an open breaker waits before it tries a call"
    )

    @model_validator(mode="after")
    def _detection_topics(self) -> Self:
        of_the_engine = {f"{self.topic_prefix}{name}" for name in _OTHER_TOPICS}
        for topic in self.detection_topics:
            if topic.name in of_the_engine:
                text = f"{variable_name('detection_topics')}: {topic.name} holds something else"
                raise PydanticCustomError("setting", "{text}", {"text": text})
            if topic.format in REGISTERED_FORMATS and self.schema_registry_url is None:
                text = f"{variable_name('schema_registry_url')} is required by {topic}"
                raise PydanticCustomError("setting", "{text}", {"text": text})
        return self

    @model_validator(mode="after")
    def _kafka_security(self) -> Self:
        given = {name: value for name in self.model_fields_set if (value := getattr(self, name))}
        ordered = {name: given[name] for name in type(self).model_fields if name in given}
        if fault := kafka_security_fault(self.kafka_security_protocol, ordered):
            name, why = fault
            raise PydanticCustomError("setting", "{text}", {"text": f"{variable_name(name)} {why}"})
        return self


def variable_name(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()
