"""Kafka's settings reach the clients of a command, and a wrong one is named in one line."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.kafka.consumer import group_consumer
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.topics import ensure_topics
from engine.process.settings_sources import load_settings
from tests.cli.proximity import Proximity, detection, findings_of, ports
from tests.servers.kafka.secured import LIMITED, OAUTH, PASSWORD, SCRAM, USER, SecuredKafkaServer
from tests.servers.missing import KAFKA, skipping
from tests.servers.process import started
from tests.servers.token_endpoint import (
    CLIENT,
    SECRET,
    TokenEndpointService,
    token_endpoint,
)
from tests.servers.waiting import eventually

PREFIX = "PROXIMITY_KAFKA_"


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecuredKafkaServer]:
    with skipping("Apache Kafka", instead=KAFKA), started(SecuredKafkaServer) as server:
        yield server


def command(directory: Path, where: str, topic_prefix: str, **settings: str) -> Proximity:
    more = {PREFIX + name.upper(): value for name, value in settings.items()}
    return Proximity(directory, where, topic_prefix, **more, **ports())


def publish(
    directory: Path, where: str, topic_prefix: str, **settings: str
) -> tuple[int, str, str]:
    done = command(directory, where, topic_prefix, **settings)("publish", "-", given=detection("a"))
    return done.returncode, done.stdout, done.stderr


def login(password: str = PASSWORD, user: str = USER) -> dict[str, str]:
    return {"sasl_username": user, "sasl_password": password}


def by_token(endpoint: TokenEndpointService, secret: str = SECRET) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_url": endpoint.url,
        "sasl_oauth_client_id": CLIENT,
        "sasl_oauth_client_secret": secret,
        "sasl_oauth_extensions": "pool=one",
    }


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "PLAIN"), ("SASL_SSL", SCRAM[-1])],
)
def test_correct_settings_work(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str, protocol: str, mechanism: str
) -> None:
    settings = {"security_protocol": protocol}
    settings |= login() | {"sasl_mechanism": mechanism} if "SASL" in protocol else {}
    settings |= {"ssl_cafile": str(kafka.authority)} if protocol.endswith("SSL") else {}
    if mechanism in SCRAM:
        kafka.add_scram_user()
    status, output, error = publish(tmp_path, kafka.addresses[protocol], topic_prefix, **settings)
    assert (status, error) == (0, "")
    assert output.startswith("published 1 detections")


@pytest.mark.parametrize(
    ("listener", "protocol", "given", "expected"),
    [
        ("SSL", "PLAINTEXT", {}, "check PROXIMITY_KAFKA_BOOTSTRAP_SERVERS, _SECURITY_PROTOCOL"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", login("wrong"), "Authentication failed"),
        (
            "SASL_PLAINTEXT",
            "SASL_PLAINTEXT",
            login() | {"sasl_mechanism": "SCRAM-SHA-256"},
            "UnsupportedSaslMechanismError",
        ),
        ("SSL", "SSL", {}, "unable to get local issuer certificate"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", login(user=LIMITED), "hidden from this login"),
    ],
)
def test_a_wrong_setting_is_named(
    tmp_path: Path,
    kafka: SecuredKafkaServer,
    topic_prefix: str,
    listener: str,
    protocol: str,
    given: dict[str, str],
    expected: str,
) -> None:
    where = kafka.addresses[listener]
    settings = given | {"security_protocol": protocol}
    status, output, error = publish(tmp_path, where, topic_prefix, **settings)
    assert (status, output) == (1, "")
    assert error.count("\n") == 1, error
    assert error.startswith("proximity: Kafka")
    assert where in error
    assert expected in error
    assert PASSWORD not in error


async def test_a_login_by_token_works(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    where = kafka.addresses[OAUTH]
    async with token_endpoint(kafka.token_key) as endpoint:
        settings = by_token(endpoint)
        done = await asyncio.to_thread(publish, tmp_path, where, topic_prefix, **settings)
        assert done[0::2] == (0, "")
        assert done[1].startswith("published 1 detections")
        check = command(tmp_path, where, topic_prefix, **settings)
        found = findings_of(await asyncio.to_thread(check, "check", "--json"))
    assert found["Kafka reachable"] == ("ok", f"{where}, 1 broker")
    assert found["Kafka token"] == ("ok", "good for 300 s")


async def test_connections_outlive_their_tokens(
    kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    """The broker ends each connection when its token expires; the next one has the next token."""
    async with token_endpoint(kafka.token_key) as endpoint:
        endpoint.seconds = 4.0
        given = {f"kafka_{name}": value for name, value in by_token(endpoint).items()}
        where = {"kafka_bootstrap_servers": kafka.addresses[OAUTH], "group_prefix": topic_prefix}
        settings = load_settings(None, **where, **given)
        topic = f"{topic_prefix}detections"
        await ensure_topics(settings, (topic,))
        publisher, consumer = Publisher(settings), group_consumer(settings, "trigger")
        consumer.subscribe([topic])
        await publisher.start()
        await consumer.start()
        try:
            await eventually(consumer.assignment)
            await consumer.seek_to_beginning()
            published, read = 0, list[int]()
            async with asyncio.timeout(90):
                while len(endpoint.granted) < 3 or len(read) < published:
                    if len(endpoint.granted) < 3:
                        await publisher.publish([Outgoing(topic, None, b"%d" % published, [])])
                        published += 1
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        read += [int(record.value or b"") for record in records]
            assert sorted(read) == list(range(published))
        finally:
            await consumer.stop()
            await publisher.close()
