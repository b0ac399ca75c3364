"""Every setting, with its default and meaning. Prefix `PROXIMITY_` in the environment."""

from pathlib import Path
from typing import Literal, Self

from pydantic import SecretStr, model_validator
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
    refused,
    setting,
)

PREFIX = "PROXIMITY_"
_OTHER_TOPICS = ("authentications", "notifications", "connector-calls", "dead-letters")


class Settings(BaseSettings):
    """The settings of one process. Durations are in seconds unless the name says otherwise."""

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
    kafka_sasl_oauth_client_id: str | None = setting(None, "client id of the token request")
    kafka_sasl_oauth_client_secret: SecretStr | None = setting(None, "secret of this client")
    kafka_sasl_oauth_scope: str | None = setting(
        None, "scope of the token, if the provider needs one"
    )
    kafka_sasl_oauth_extensions: Extensions = setting(
        (), "SASL extensions that the brokers need: name=value, comma-separated"
    )
    kafka_sasl_oauth_timeout: Seconds = setting(5.0, "deadline of one token request")
    kafka_sasl_oauth_ca_file: ReadableFile | None = setting(
        None, "PEM file that verifies the token endpoint"
    )
    kafka_ssl_cafile: ReadableFile | None = setting(None, "PEM file that verifies the brokers")
    kafka_ssl_certfile: ReadableFile | None = setting(None, "PEM client certificate")
    kafka_ssl_keyfile: ReadableFile | None = setting(None, "PEM key of the client certificate")
    kafka_ssl_password: SecretStr | None = setting(None, "password of the key file")
    kafka_request_timeout: Seconds = setting(20.0, "deadline of one request to a broker")
    kafka_session_timeout: Seconds = setting(
        10.0, "time without a heartbeat after which the group removes a member"
    )
    kafka_fetch_wait: Seconds = setting(
        0.5, "longest time that a broker delays the answer to a fetch when it has no new records"
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
    schema_registry_timeout: Seconds = setting(
        5.0, "deadline of one request to the schema registry"
    )
    schema_registry_ca_file: ReadableFile | None = setting(
        None, "PEM file that verifies the schema registry"
    )
    group_prefix: str = setting("proximity-", "prefix of every consumer group")

    redis_url: RedisUrl = setting(
        SecretStr("redis://localhost:6379/0"),
        "redis://, rediss://, redis+cluster:// or redis+sentinel://; rediss is TLS",
    )
    redis_prefix: str = setting("proximity:", "prefix of every Redis key")
    redis_timeout: Seconds = setting(5.0, "deadline of one call to Redis")
    database_url: DatabaseUrl = setting(
        SecretStr("sqlite:///proximity.sqlite3"), "postgresql:// or sqlite:///"
    )
    secret_key: SecretStr | None = setting(
        None,
        "key that encrypts connector parameters at rest; to rotate it: the new key, a comma, "
        "the old key",
    )

    metrics_host: str = setting("127.0.0.1", "address of the metrics port")
    metrics_port: Port = setting(9464, "port of metrics and health, one for all workers; 0: any")
    otel_endpoint: EndpointUrl | None = setting(
        None, "OTLP collector over HTTP that gets the spans of sampled traces; needs the extra otel"
    )
    api_host: str = setting("127.0.0.1", "address of the management interface")
    api_port: Port = setting(8000, "port of the management interface")
    api_metrics_port: Port = setting(9463, "metrics port of the management interface; 0: any")
    api_metrics_host: str = setting(
        "127.0.0.1", "address of the management interface's metrics port"
    )
    api_trusted_proxies: Networks = setting(
        (), "networks of proxies whose X-Forwarded-For is trusted, comma-separated"
    )
    api_cors_origins: Texts = setting(
        (), "origins whose pages may call the interface, comma-separated"
    )
    console: bool = setting(True, "serve the console at /console beside the management interface")
    api_max_body: int = setting(1024 * 1024, "most bytes of a request's body", ge=1024)
    campaign_content_bytes: int = setting(
        65_536, "most bytes of a campaign's texts, nfcs and qrcodes together", ge=1024
    )
    venue_campaigns: Count = setting(1000, "most campaigns of a venue")
    venue_beacons: Count = setting(10_000, "most beacons of a venue")
    beacon_open_campaigns: Count = setting(
        100, "most active campaigns of a beacon whose dates overlap"
    )
    api_body_timeout: Seconds = setting(15.0, "time for a request's body to arrive")
    api_answer_timeout: Seconds = setting(
        30.0, "time for an answer to begin, and then for the client to read each piece of it"
    )
    api_list_timeout: Seconds = setting(600.0, "time for a whole answer, also for a long list")
    api_connections: Count = setting(500, "most open connections to the management interface")
    api_head_timeout: Seconds = setting(
        10.0, "time for a request's head to arrive, from its first byte"
    )
    api_idle_timeout: Seconds = setting(
        30.0, "time for which a connection may stay open without a request"
    )
    login_attempts_account: Count = setting(
        10, "failed logins of an account from one network in LOGIN_WINDOW, after which it gets 429"
    )
    login_window: Seconds = setting(300.0, "period in which failed logins are counted")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "debug, info, warning or error"
    )
    log_format: Literal["json", "console", "auto"] = setting(
        "auto", "json, console, or auto: console on a terminal"
    )

    max_detection_age: float = setting(
        300.0,
        "a detection that is older, or further in the future, triggers nothing; at most a week",
        gt=0,
        le=7 * 86_400,  # the index keeps the content of an ended campaign for longer
    )
    clock_skew_limit: Seconds = setting(
        30.0, "seconds by which the clocks of servers may differ without an error"
    )
    notification_lifetime: Seconds = setting(
        300.0, "time from detected_at to a notification's expires_at"
    )
    path_loss_exponent: float = setting(2.0, "n in the formula from rssi to distance", gt=0, le=10)

    batch_records: Count = setting(5000, "most records in a batch; in one of a recorder four times")
    in_flight_records: Count = setting(
        20_000, "records in flight (fetched and not finished) at which fetching pauses"
    )
    in_flight_bytes: int = setting(
        64 * 1024 * 1024,
        "bytes of records in flight at which the trigger pauses fetching; it composes messages "
        "in pieces of a small part of it",
        ge=1024 * 1024,
    )
    commit_interval: float = setting(
        0.0, "least time between two offset commits; 0: commit finished records at once", ge=0
    )
    delivery: Literal["at_least_once", "exactly_once"] = setting(
        "at_least_once",
        "at_least_once; or exactly_once: one Kafka transaction a batch, for consumers "
        "that read committed",
    )
    transactional_producers: Count = setting(
        100, "most partitions of a process with DELIVERY=exactly_once"
    )
    drain_timeout: Seconds = setting(20.0, "time to finish the records in flight at shutdown")
    index_cache_beacons: Count = setting(200_000, "most beacons that a process caches")
    index_cache_bytes: int = setting(
        256 * 1024 * 1024,
        "most bytes of campaigns that a process caches: their content, and 900 bytes each",
        ge=1024,
    )
    index_cache_age: Seconds = setting(300.0, "age at which a cached beacon is read again")
    held_claims: Count = setting(
        250_000, "most claims that a process remembers; four times as many if devices have many"
    )
    recent_decisions: int = setting(
        10,
        "last decisions of each device, without repeats, kept in Redis for a day; 0: none",
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
        "a role stops when records fail for more than this share of the last 1000 keys that "
        "succeeded before; 1: never",
        gt=0,
        le=1,
    )
    compiled: bool = setting(True, "use the compiled modules, where they are installed")
    dead_letter_run: Count = setting(
        1000,
        "a role stops when so many different keys fail and no record has succeeded for 10 s; "
        "above 100000: never",
    )

    trace: Literal["all", "changes", "none"] = setting(
        "all",
        "detections that get a trace row: all; changes (of the zone at a beacon, and one a "
        "minute); none",
    )
    trace_retention: int = setting(
        30, "days for which traces and receptions are kept", ge=1, le=3650
    )
    recorder_timeout: Seconds = setting(30.0, "deadline of one transaction of the recorder")

    connector_allow_networks: Networks = setting(
        (), "networks that connectors may call besides public ones, comma-separated"
    )
    connector_ca_file: Path | None = setting(
        None, "PEM file of authorities that verify connectors, besides the well-known ones"
    )
    connector_connect_timeout: Seconds = setting(
        1.0, "time to resolve a connector's name and connect, TLS included"
    )
    connector_call_timeout: Seconds = setting(3.0, "time for a whole call to a connector")
    connector_reply_bytes: Count = setting(65_536, "most bytes of the body of a connector's reply")
    connector_reply_steps: Count = setting(
        1000, "most parser events, reads and header lines of a connector's reply"
    )
    connector_company_calls: Count = setting(32, "most calls of a company in flight")
    connector_calls: Count = setting(512, "most calls of a process in flight")
    connector_pending: int = setting(
        50_000, "most calls that a process holds, at most half of them of one company", ge=2
    )
    connector_tries: Count = setting(3, "tries of a call, while its detection is fresh")
    connector_breaker_window: Count = setting(
        20, "last calls of a company that its breaker considers"
    )
    connector_breaker_failures: Count = setting(
        10, "failures among these calls at which the breaker opens"
    )
    connector_breaker_pause: Seconds = setting(
        10.0, "time that an open breaker waits before a trial call"
    )

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
        given = {name: value for name in self.model_fields_set if (value := getattr(self, name))}
        ordered = {name: given[name] for name in type(self).model_fields if name in given}
        if fault := kafka_security_fault(self.kafka_security_protocol, ordered):
            name, cause = fault
            raise refused(f"{variable_name(name)} {cause}")
        return self


def variable_name(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()
