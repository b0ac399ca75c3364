"""A wrong Kafka setting leads to one line that names it; right settings work."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there by name
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from engine.kafka.topics import Topics
from tests.integration.commands.checked import looked, ports
from tests.integration.commands.proximity import Proximity, detection
from tests.servers.handles import KAFKA
from tests.servers.kafka.secured import LIMITED, PASSWORD, SCRAM, USER, SecuredKafkaServer
from tests.servers.missing import skipping
from tests.servers.process import started

PREFIX = "PROXIMITY_KAFKA_"


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecuredKafkaServer]:
    with skipping("Apache Kafka", instead=KAFKA), started(SecuredKafkaServer) as server:
        yield server


@contextmanager
def listening() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def publish(
    directory: Path, where: str, topic_prefix: str, **settings: str
) -> "tuple[int, str, str]":
    more = {PREFIX + name.upper(): value for name, value in settings.items()}
    command = Proximity(directory, where, topic_prefix, **more)
    file = command.write("one.jsonl", detection("a"))
    done = command("publish", file)
    return done.returncode, done.stdout, done.stderr


def login(password: str = PASSWORD) -> dict[str, str]:
    return {"sasl_username": USER, "sasl_password": password}


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_what_is_right_works(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str, protocol: str
) -> None:
    settings = {"security_protocol": protocol}
    settings |= login() if "SASL" in protocol else {}
    settings |= {"ssl_cafile": str(kafka.authority)} if protocol.endswith("SSL") else {}
    status, output, error = publish(tmp_path, kafka.addresses[protocol], topic_prefix, **settings)
    assert (status, error) == (0, "")
    assert output.startswith("published 1 detections")


@pytest.mark.parametrize("mechanism", SCRAM if "PROXIMITY_TEST_FULL" in os.environ else SCRAM[1:])
def test_a_login_by_scram_works(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str, mechanism: str
) -> None:
    kafka.add_scram_user()
    settings = login() | {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "ssl_cafile": str(kafka.authority),
    }
    where = kafka.addresses["SASL_SSL"]
    status, output, error = publish(tmp_path, where, topic_prefix, **settings)
    assert (status, error) == (0, "")
    assert output.startswith("published 1 detections")
    settings["sasl_password"] = "wrong"
    status, output, error = publish(tmp_path, where, topic_prefix, **settings)
    assert (status, output) == (1, "")
    assert f"refuses the login of '{USER}' by {mechanism}" in error


@pytest.mark.parametrize(
    ("listener", "protocol", "given", "told"),
    [
        ("SSL", "PLAINTEXT", {}, "speaks TLS: set PROXIMITY_KAFKA_SECURITY_PROTOCOL to SSL"),
        ("SASL_SSL", "SASL_PLAINTEXT", login(), "speaks TLS: set PROXIMITY_KAFKA_SECURITY"),
        ("PLAINTEXT", "SSL", {}, "speaks plain text: set PROXIMITY_KAFKA_SECURITY_PROTOCOL to PL"),
        ("SASL_PLAINTEXT", "PLAINTEXT", {}, "is Kafka and wants a login"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", login("wrong"), "refuses the login of 'engine' by PL"),
        (
            "SASL_PLAINTEXT",
            "SASL_PLAINTEXT",
            login() | {"sasl_mechanism": "SCRAM-SHA-256"},
            "does not take the mechanism SCRAM-SHA-256: look at PROXIMITY_KAFKA_SASL_",
        ),
        ("SSL", "SSL", {}, "is refused (unable to get local issuer certificate): look at PROX"),
    ],
)
def test_what_is_wrong_is_named_with_where_to_look(
    tmp_path: Path,
    kafka: SecuredKafkaServer,
    topic_prefix: str,
    listener: str,
    protocol: str,
    given: dict[str, str],
    told: str,
) -> None:
    where = kafka.addresses[listener]
    settings = given | {"security_protocol": protocol}
    status, output, error = publish(tmp_path, where, topic_prefix, **settings)
    assert (status, output) == (1, "")
    assert error.count("\n") == 1, error
    assert error.startswith("proximity: Kafka")
    assert where in error
    assert told in error
    assert PASSWORD not in error


def test_an_authority_that_is_not_the_brokers(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    settings = {"security_protocol": "SSL", "ssl_cafile": str(other)}
    _, _, error = publish(tmp_path, kafka.addresses["SSL"], topic_prefix, **settings)
    assert "is refused (unable to get local issuer certificate)" in error
    assert str(other) in error


def test_an_address_where_no_kafka_is(tmp_path: Path, topic_prefix: str) -> None:
    _, _, error = publish(tmp_path, "127.0.0.1:1", topic_prefix)
    assert "127.0.0.1:1 refuses connections: look at the port" in error
    _, _, error = publish(tmp_path, "no-such-host.invalid:9092", topic_prefix)
    assert "the name no-such-host.invalid is not known" in error
    with listening() as where:
        # Silence may be that of a broker that is just starting: the deadline is waited for.
        _, _, error = publish(tmp_path, where, topic_prefix, request_timeout="2")
    assert f"{where} is not Kafka (ends the connection or stays silent)" in error
    assert error.count("\n") == 1


@contextmanager
def http_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_of_another_kind_is_not_waited_for(tmp_path: Path, topic_prefix: str) -> None:
    with http_server() as where:
        begin = time.monotonic()
        _, _, error = publish(tmp_path, where, topic_prefix, request_timeout="55")
    assert f"{where} is an HTTP server, not Kafka: look at the port" in error
    assert time.monotonic() - begin < 50


def allow(
    admin: AdminClient,
    name: str,
    *operations: AclOperation,
    kind: ResourceType = ResourceType.TOPIC,
) -> None:
    pattern = (kind, name, ResourcePatternType.LITERAL)
    rules = [
        AclBinding(*pattern, f"User:{LIMITED}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for made in admin.create_acls(rules).values():
        made.result(30)


def test_what_a_login_may_not_do(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.addresses["PLAINTEXT"]})
    topics = Topics.named(topic_prefix)
    names = [name for name in topics.all() if name != topics.authentications]
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        made.result(30)
    allow(admin, topics.detections, AclOperation.READ)
    allow(admin, topics.notifications, AclOperation.READ)
    allow(admin, topics.connector_calls, AclOperation.READ, AclOperation.WRITE)
    allow(admin, topics.authentications, AclOperation.DESCRIBE)
    group = ResourceType.GROUP
    allow(admin, f"{topic_prefix}trigger", AclOperation.READ, kind=group)
    allow(admin, f"{topic_prefix}connector", AclOperation.DESCRIBE, kind=group)
    login = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_USERNAME": LIMITED}
    login |= {"SASL_PASSWORD": PASSWORD}
    more = {f"PROXIMITY_KAFKA_{name}": value for name, value in login.items()}
    where = kafka.addresses["SASL_PLAINTEXT"]
    found = looked(Proximity(tmp_path, where, topic_prefix, **more, **ports())("check", "--json"))
    of = {name: found[f"Kafka topic {name}"] for name in topics.all()}
    assert of[topics.detections] == ("ok", "2 partitions, read")
    assert of[topics.notifications] == ("bad", "2 partitions; this login may not write")
    assert of[topics.connector_calls] == ("ok", "2 partitions, read and write")
    assert of[topics.dead_letters] == ("bad", "this login may not see it")
    state, told = of[topics.authentications]
    assert (state, told.partition(",")[0]) == ("bad", "missing")
    assert found[f"Kafka group {topic_prefix}trigger"] == ("ok", "read")
    lacking = "this login may see it, and not read it"
    assert found[f"Kafka group {topic_prefix}connector"] == ("bad", lacking)
    assert found[f"Kafka group {topic_prefix}recorder"] == ("bad", "this login may not see it")
