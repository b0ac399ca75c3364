"""Every setting, with its default and meaning. Prefix `PROXIMITY_` in the environment."""

from pathlib import Path
from typing import Literal, Self

from pydantic import SecretStr, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.process.detection_topics import REGISTERED_FORMATS, DetectionTopics
from engine.process.kafka_security import kafka_security_fault
from engine.process.settings_checks import (
    BootstrapServers,
    Count,
    DatabaseUrl,
    EndpointUrl,
    Extensions,
    Networks,
    Port,
    ReadableFile,
    RedisUrl,
    RegistryUrl,
    Seconds,
    Texts,
    TokenUrl,
    TopicPrefix,
    setting,
)

PREFIX = "PROXIMITY_"
_OTHER_TOPICS = ("authentications", "notifications", "connector-calls", "dead-letters")


class Settings(BaseSettings):
    """What one process is told. Durations are seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

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
    kafka_sasl_oauth_token_url: TokenUrl | None = setting(
        None, "https://host/path, the OIDC provider's token endpoint; for OAUTHBEARER"
    )
    kafka_sasl_oauth_client_id: str | None = setting(None, "client that asks for the token")
    kafka_sasl_oauth_client_secret: SecretStr | None = setting(None, "secret of this client")
    kafka_sasl_oauth_scope: str | None = setting(
        None, "scope of the token, where the provider wants one"
    )
    kafka_sasl_oauth_extensions: Extensions = setting(
        (), "what the brokers want beside the token: name=value, comma-separated"
    )
    kafka_sasl_oauth_timeout: Seconds = setting(5.0, "deadline of one request for a token")
    kafka_sasl_oauth_ca_file: ReadableFile | None = setting(
        None, "PEM file that verifies the token endpoint"
    )
    kafka_ssl_cafile: ReadableFile | None = setting(None, "PEM file that verifies the brokers")
    kafka_ssl_certfile: ReadableFile | None = setting(None, "PEM client certificate")
    kafka_ssl_keyfile: ReadableFile | None = setting(None, "PEM key of the client certificate")
    kafka_ssl_password: SecretStr | None = setting(None, "password of the key file")
    kafka_request_timeout: Seconds = setting(20.0, "deadline of one request to a broker")
    kafka_session_timeout: Seconds = setting(
        10.0, "silence after which the group gives a member up"
    )
    kafka_fetch_wait: Seconds = setting(
        0.5, "how long a broker may hold the answer when it has nothing new"
    )
    topic_prefix: TopicPrefix = setting("proximity.", "in front of every topic name")
    topic_partitions: int = setting(
        6, "partitions of the topics that a start has to create", ge=1, le=10_000
    )
    topic_replication: int = setting(
        -1, "replicas of created topics; -1: the broker's default", ge=-1, le=15
    )
    detection_topics: DetectionTopics = setting(
        (),
        "topics of detections beside <prefix>detections, or another format for it: "
        "topic=format, comma-separated; the formats are those of docs/formats.md",
    )
    schema_registry_url: RegistryUrl | None = setting(
        None, "http:// or https://, [user:password@]host; for avro and its kin"
    )
    schema_registry_timeout: Seconds = setting(
        5.0, "deadline of one request to the schema registry"
    )
    schema_registry_ca_file: ReadableFile | None = setting(
        None, "PEM file that verifies the schema registry"
    )
    group_prefix: str = setting("proximity-", "in front of every consumer group")

    redis_url: RedisUrl = setting(
        SecretStr("redis://localhost:6379/0"),
        "redis://, rediss://, redis+cluster:// or redis+sentinel://; rediss is TLS",
    )
    redis_prefix: str = setting("proximity:", "in front of every Redis key")
    redis_timeout: Seconds = setting(5.0, "deadline of one call to Redis")
    database_url: DatabaseUrl = setting(
        SecretStr("sqlite:///proximity.sqlite3"), "postgresql:// or sqlite:///"
    )
    secret_key: SecretStr | None = setting(
        None, "encrypts connector parameters at rest; several, comma-separated, to rotate"
    )

    metrics_host: str = setting("127.0.0.1", "address of the metrics port")
    metrics_port: Port = setting(
        9464, "port of metrics and health, of all workers together; 0: any"
    )
    otel_endpoint: EndpointUrl | None = setting(
        None, "OTLP over HTTP, where spans of sampled traces go; needs the extra otel"
    )
    api_host: str = setting("127.0.0.1", "address of the management interface")
    api_port: Port = setting(8000, "port of the management interface")
    api_metrics_port: Port = setting(9463, "metrics port of the management interface; 0: any")
    api_metrics_host: str = setting(
        "127.0.0.1", "address of the management interface's metrics port"
    )
    api_trusted_proxies: Networks = setting(
        (), "networks whose X-Forwarded-For is believed, comma-separated"
    )
    api_cors_origins: Texts = setting(
        (), "sites whose pages may call the interface, comma-separated"
    )
    console: bool = setting(True, "serve the console at /console beside the management interface")
    api_max_body: int = setting(1024 * 1024, "bytes of a request's body", ge=1024)
    campaign_content_bytes: int = setting(
        65_536, "of a campaign's texts, nfcs and qrcodes together", ge=1024
    )
    venue_campaigns: Count = setting(1000, "campaigns of a venue")
    venue_beacons: Count = setting(10_000, "beacons of a venue")
    beacon_open_campaigns: Count = setting(100, "active campaigns of a beacon whose dates overlap")
    api_body_timeout: Seconds = setting(15.0, "for a request's body to arrive")
    api_answer_timeout: Seconds = setting(
        30.0, "for an answer to begin, and then for each piece of it"
    )
    api_list_timeout: Seconds = setting(600.0, "for a whole answer, however long a list it is")
    api_connections: Count = setting(500, "connections to the management interface at once")
    api_head_timeout: Seconds = setting(10.0, "for a request's head, from its first byte")
    api_idle_timeout: Seconds = setting(30.0, "for which a connection may be open with no request")
    login_attempts_account: Count = setting(
        10, "failed logins of an account from one network in LOGIN_WINDOW, then 429 there"
    )
    login_window: Seconds = setting(300.0, "over which failed logins are counted")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "debug, info, warning or error"
    )
    log_format: Literal["json", "console", "auto"] = setting(
        "auto", "json, console, or auto: console on a terminal"
    )

    max_detection_age: float = setting(
        300.0,
        "older, or as far in the future, triggers nothing; at most a week",
        gt=0,
        le=7 * 86_400,  # the index keeps what an ended campaign sends for longer
    )
    clock_skew_limit: Seconds = setting(
        30.0, "seconds by which clocks of servers may differ without an error"
    )
    notification_lifetime: Seconds = setting(
        300.0, "from detected_at to a notification's expires_at"
    )
    path_loss_exponent: float = setting(2.0, "n of the rssi to distance formula", gt=0, le=10)

    batch_records: Count = setting(5000, "most records that one step of a partition takes")
    in_flight_records: Count = setting(
        20_000, "records fetched and not finished at which fetching pauses"
    )
    in_flight_bytes: int = setting(
        64 * 1024 * 1024,
        "bytes of them at which the trigger stops fetching; messages are composed in "
        "pieces of a small part of it",
        ge=1024 * 1024,
    )
    commit_interval: float = setting(
        0.0, "least time between two offset commits; 0: what is done, at once", ge=0
    )
    delivery: Literal["at_least_once", "exactly_once"] = setting(
        "at_least_once",
        "at_least_once; or exactly_once: one Kafka transaction a batch, for consumers "
        "that read committed",
    )
    transactional_producers: Count = setting(
        100, "partitions of a process with DELIVERY=exactly_once"
    )
    drain_timeout: Seconds = setting(20.0, "to finish what is begun when stopping")
    index_cache_beacons: Count = setting(200_000, "beacons remembered per process")
    index_cache_bytes: int = setting(
        128 * 1024 * 1024, "bytes of what campaigns send that are remembered with them", ge=1024
    )
    index_cache_age: Seconds = setting(300.0, "a remembered beacon is read again")
    held_claims: Count = setting(
        250_000, "claims (of a campaign on a device) remembered per process"
    )
    recent_decisions: int = setting(
        10,
        "decisions of each device, but for repeats, kept in Redis for a day; 0: none",
        ge=0,
        le=100,
    )
    decision_figures: bool = setting(
        True,
        "add decisions up by company, hour, reason and campaign, in Redis for a month; "
        "false: the statistics have days only",
    )
    dead_letter_share: float = setting(
        0.5,
        "share of 1000 keys understood before that fail now, past which a role stops; 1: never",
        gt=0,
        le=1,
    )
    dead_letter_run: Count = setting(
        1000,
        "different keys that fail, with no good record for 10 s, at which a role "
        "stops; above 100000: never",
    )

    trace: Literal["all", "changes", "none"] = setting(
        "all",
        "detections that leave a trace row: all; changes of the zone at a beacon, and "
        "one a minute; none",
    )
    trace_retention: int = setting(
        30, "days for which traces and receptions are kept", ge=1, le=3650
    )
    recorder_timeout: Seconds = setting(30.0, "deadline of one transaction of the recorder")

    connector_allow_networks: Networks = setting(
        (), "networks a connector may lead to besides public ones, comma-separated"
    )

    connector_ca_file: Path | None = setting(
        None, "PEM file of authorities that verify connectors, besides the known ones"
    )
    connector_connect_timeout: Seconds = setting(
        1.0, "to look a connector's name up and connect to it, TLS included"
    )
    connector_call_timeout: Seconds = setting(3.0, "for a whole call to a connector")
    connector_reply_bytes: Count = setting(
        65_536, "a connector's reply is read up to so many bytes"
    )
    connector_reply_steps: Count = setting(
        1000, "events of the parser, reads and header lines that a reply may take"
    )
    connector_company_calls: Count = setting(32, "calls of a company in flight")
    connector_calls: Count = setting(512, "calls of a process in flight")
    connector_pending: int = setting(
        50_000, "calls a process holds; one company may hold half of them", ge=2
    )
    connector_tries: Count = setting(3, "tries of a call, while it is fresh")
    connector_breaker_window: Count = setting(
        20, "last calls of a company that its breaker looks at"
    )
    connector_breaker_failures: Count = setting(10, "failures among them at which it opens")
    connector_breaker_pause: Seconds = setting(
        10.0, "how long an open breaker waits before it tries a call"
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
