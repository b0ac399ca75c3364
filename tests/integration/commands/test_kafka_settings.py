"""What keeps a newcomer from Kafka is said in one line that names it; what is right works."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.integration.commands.proximity import Proximity, detection
from tests.servers.handles import KAFKA
from tests.servers.kafka.secured import PASSWORD, USER, SecuredKafkaServer
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
        _, _, error = publish(tmp_path, where, topic_prefix)
    assert f"{where} is not Kafka (ends the connection or stays silent)" in error
    assert error.count("\n") == 1
