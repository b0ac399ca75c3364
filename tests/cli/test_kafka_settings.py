"""Kafka's settings reach the clients of a command, and a wrong one is named in one line."""

import asyncio
from collections.abc import Iterator

import pytest

from engine.kafka.consumer import group_consumer
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.topics import ensure_topics
from engine.process.settings_sources import load_settings
from tests.cli.given import detection, findings_of
from tests.servers.kafka.secured import LIMITED, OAUTH, PASSWORD, SCRAM, USER, SecuredKafkaServer
from tests.servers.missing import KAFKA, skipping
from tests.servers.process import started
from tests.servers.proximity import Command, Rig
from tests.servers.token_endpoint import TokenEndpointService
from tests.servers.waiting import eventually


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecuredKafkaServer]:
    with skipping("Apache Kafka", instead=KAFKA), started(SecuredKafkaServer) as server:
        yield server


@pytest.fixture
def rig(rig: Rig, topic_prefix: str) -> Rig:
    rig.settings |= dict.fromkeys(("TOPIC_PREFIX", "GROUP_PREFIX"), topic_prefix)
    return rig


def publish(rig: Rig, where: str, given: dict[str, str]) -> Command:
    rig.settings["KAFKA_BOOTSTRAP_SERVERS"] = where
    rig.settings |= {f"KAFKA_{name}": value for name, value in given.items()}
    return rig("publish", "-", given=detection("a"))


SCRAM_256 = {"SASL_MECHANISM": SCRAM[0]}


def login(password: str = PASSWORD, user: str = USER) -> dict[str, str]:
    return {"SASL_USERNAME": user, "SASL_PASSWORD": password}


def by_token(endpoint: TokenEndpointService) -> dict[str, str]:
    more = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_OAUTH_EXTENSIONS": "pool=one"}
    return endpoint.settings | more


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "PLAIN"), ("SASL_SSL", SCRAM[-1])],
)
def test_correct_settings_work(
    rig: Rig, kafka: SecuredKafkaServer, protocol: str, mechanism: str
) -> None:
    settings = {"SECURITY_PROTOCOL": protocol}
    settings |= login() | {"SASL_MECHANISM": mechanism} if "SASL" in protocol else {}
    settings |= {"SSL_CAFILE": str(kafka.authority)} if protocol.endswith("SSL") else {}
    if mechanism in SCRAM:
        kafka.add_scram_user()
    done = publish(rig, kafka.addresses[protocol], settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("published 1 detections")


@pytest.mark.parametrize(
    ("listener", "protocol", "given", "expected"),
    [
        ("none", "PLAINTEXT", {}, "Connect call failed"),
        ("SSL", "PLAINTEXT", {}, "check PROXIMITY_KAFKA_BOOTSTRAP_SERVERS, _SECURITY_PROTOCOL"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", login("wrong"), "Authentication failed"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", login() | SCRAM_256, "UnsupportedSaslMechanismError"),
        ("SSL", "SSL", {}, "unable to get local issuer certificate"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", login(user=LIMITED), "hidden from this login"),
    ],
)
def test_a_wrong_setting_is_named(
    rig: Rig,
    kafka: SecuredKafkaServer,
    listener: str,
    protocol: str,
    given: dict[str, str],
    expected: str,
) -> None:
    where = kafka.addresses.get(listener, "127.0.0.1:1")
    published = publish(rig, where, given | {"SECURITY_PROTOCOL": protocol})
    for done in (published, rig("dead-letters", "list")):  # a producer and a reader
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("proximity: Kafka")
        assert where in done.stderr
        assert expected in done.stderr
        assert PASSWORD not in done.stderr


async def test_a_login_by_token_works(rig: Rig, kafka: SecuredKafkaServer) -> None:
    where = kafka.addresses[OAUTH]
    async with TokenEndpointService(kafka.token_key).running() as endpoint:
        done = await asyncio.to_thread(publish, rig, where, by_token(endpoint))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("published 1 detections")
        found = findings_of(await asyncio.to_thread(rig, "check", "--json"))
    assert found["Kafka reachable"] == ("ok", f"{where}, 1 broker")
    assert found["Kafka token"] == ("ok", "good for 300 s")


async def test_connections_outlive_their_tokens(
    kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    """The broker ends each connection when its token expires; the next one has the next token."""
    async with TokenEndpointService(kafka.token_key).running() as endpoint:
        endpoint.seconds = 4.0
        given = {f"kafka_{name.lower()}": value for name, value in by_token(endpoint).items()}
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
