"""A wrong Kafka setting leads to one line that names it; right settings work."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there by name
    AclOperation,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.topics import Topics, ensure_topics
from engine.process.settings_sources import load_settings
from engine.wiring.kafka import group_consumer
from tests.integration.commands.check_output import findings_of, ports
from tests.integration.commands.logins import (
    PREFIX,
    allow,
    by_token,
    http_server,
    listening,
    login,
    publish,
)
from tests.integration.commands.proximity import Proximity
from tests.servers.handles import KAFKA
from tests.servers.kafka.secured import LIMITED, OAUTH, PASSWORD, SCRAM, USER, SecuredKafkaServer
from tests.servers.missing import skipping
from tests.servers.process import started
from tests.servers.token_endpoint import TokenKey, token_endpoint
from tests.servers.waiting import eventually


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecuredKafkaServer]:
    with skipping("Apache Kafka", instead=KAFKA), started(SecuredKafkaServer) as server:
        yield server


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_correct_settings_work(
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
    ("listener", "protocol", "given", "expected"),
    [
        ("SSL", "PLAINTEXT", {}, "speaks TLS: set PROXIMITY_KAFKA_SECURITY_PROTOCOL to SSL"),
        ("SASL_SSL", "SASL_PLAINTEXT", login(), "speaks TLS: set PROXIMITY_KAFKA_SECURITY"),
        ("PLAINTEXT", "SSL", {}, "speaks plain text: set PROXIMITY_KAFKA_SECURITY_PROTOCOL to PL"),
        ("SASL_PLAINTEXT", "PLAINTEXT", {}, "is Kafka and requires a login"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", login("wrong"), "refuses the login of 'engine' by PL"),
        (
            "SASL_PLAINTEXT",
            "SASL_PLAINTEXT",
            login() | {"sasl_mechanism": "SCRAM-SHA-256"},
            "does not support the mechanism SCRAM-SHA-256: check PROXIMITY_KAFKA_SASL_",
        ),
        ("SSL", "SSL", {}, "is refused (unable to get local issuer certificate): check PROX"),
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


def test_a_login_is_wanted_behind_tls(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    settings = {"security_protocol": "SSL", "ssl_cafile": str(kafka.authority)}
    status, _, error = publish(tmp_path, kafka.addresses["SASL_SSL"], topic_prefix, **settings)
    assert (status, error.count("\n")) == (1, 1)
    assert "requires a login: set PROXIMITY_KAFKA_SECURITY_PROTOCOL to SASL_SSL" in error


def test_a_topic_that_a_login_may_not_see(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    where, name = kafka.addresses["SASL_PLAINTEXT"], f"{topic_prefix}detections"
    settings = {"security_protocol": "SASL_PLAINTEXT"} | login() | {"sasl_username": LIMITED}
    status, _, error = publish(tmp_path, where, topic_prefix, **settings)
    assert (status, error.count("\n")) == (1, 1)
    assert f"this login may neither see nor create topic {name}: `proximity check`" in error


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
    assert "127.0.0.1:1 refuses connections: check the port" in error
    _, _, error = publish(tmp_path, "no-such-host.invalid:9092", topic_prefix)
    assert "the host name no-such-host.invalid does not resolve" in error
    with listening() as where:
        # Silence may be that of a broker that is just starting: the deadline is waited for.
        _, _, error = publish(tmp_path, where, topic_prefix, request_timeout="2")
    assert f"{where} is not Kafka (no answer, or the connection is closed)" in error
    assert error.count("\n") == 1


def test_a_server_of_another_kind_is_not_waited_for(tmp_path: Path, topic_prefix: str) -> None:
    with http_server() as where:
        begin = time.monotonic()
        _, _, error = publish(tmp_path, where, topic_prefix, request_timeout="55")
    assert f"{where} is an HTTP server, not Kafka: check the port" in error
    assert time.monotonic() - begin < 50


async def test_a_login_by_token_works(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    where = kafka.addresses[OAUTH]
    async with token_endpoint(kafka.token_key) as endpoint:
        settings = by_token(endpoint)
        done = await asyncio.to_thread(publish, tmp_path, where, topic_prefix, **settings)
        assert done[0::2] == (0, "")
        assert done[1].startswith("published 1 detections")
        assert len(endpoint.granted) == 1  # of all clients of the process
        more = {PREFIX + name.upper(): value for name, value in settings.items()}
        command = Proximity(tmp_path, where, topic_prefix, **more, **ports())
        found = findings_of(await asyncio.to_thread(command, "check", "--json"))
    assert found["Kafka reachable"] == ("ok", f"{where}, 1 broker")
    assert found["Kafka token"] == ("ok", f"{endpoint.url}, good for 300 s")


async def test_a_token_that_the_broker_refuses(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    async with token_endpoint(TokenKey()) as endpoint:  # another provider's
        done = await asyncio.to_thread(
            publish, tmp_path, kafka.addresses[OAUTH], topic_prefix, **by_token(endpoint)
        )
    assert done[:2] == (1, "")
    assert f"{kafka.addresses[OAUTH]} refuses the token of 'engine': check {PREFIX}" in done[2]
    assert done[2].count("\n") == 1
    assert not any(token in done[2] for token in endpoint.granted)


async def test_an_endpoint_without_a_token(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    where = kafka.addresses[OAUTH]
    async with token_endpoint(kafka.token_key) as endpoint:
        settings = by_token(endpoint, secret="wrong")
        done = await asyncio.to_thread(publish, tmp_path, where, topic_prefix, **settings)
    assert done[:2] == (1, "")
    refused = f"{where} requires a token, and {endpoint.url} refuses the client 'engine' (401 "
    assert refused in done[2]
    assert done[2].count("\n") == 1


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
        publisher, consumer = Publisher.from_settings(settings), group_consumer(settings, "trigger")
        consumer.subscribe([topic])
        await publisher.start()
        await consumer.start()
        try:
            await eventually(consumer.assignment, deadline=30)
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


def test_missing_rights_of_a_login(
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
    found = findings_of(
        Proximity(tmp_path, where, topic_prefix, **more, **ports())("check", "--json")
    )
    of = {name: found[f"Kafka topic {name}"] for name in topics.all()}
    assert of[topics.detections] == ("ok", "2 partitions, read")
    assert of[topics.notifications] == ("bad", "2 partitions; this login may not write")
    assert of[topics.connector_calls] == ("ok", "2 partitions, read and write")
    assert of[topics.dead_letters] == ("bad", "this login may not see it")
    state, expected = of[topics.authentications]
    assert (state, expected.partition(",")[0]) == ("bad", "missing")
    assert found[f"Kafka group {topic_prefix}trigger"] == ("ok", "read")
    lacking = "this login may see it, and not read it"
    assert found[f"Kafka group {topic_prefix}connector"] == ("bad", lacking)
    assert found[f"Kafka group {topic_prefix}recorder"] == ("bad", "this login may not see it")
    assert not [name for name in found if "transactional" in name]


def test_rights_that_exactly_once_needs(
    tmp_path: Path, kafka: SecuredKafkaServer, topic_prefix: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.addresses["PLAINTEXT"]})
    ids = {"trigger": f"{topic_prefix}trigger-{topic_prefix}detections-"}
    ids["connector"] = f"{topic_prefix}connector-{topic_prefix}connector-calls-"
    identity, by = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED
    allow(admin, ids["trigger"], AclOperation.WRITE, kind=identity, by=by)
    allow(admin, ids["connector"], AclOperation.DESCRIBE, kind=identity, by=by)
    more = {"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KAFKA_SASL_USERNAME": LIMITED}
    more |= {"KAFKA_SASL_PASSWORD": PASSWORD, "DELIVERY": "exactly_once"}
    settings = {f"PROXIMITY_{name}": value for name, value in more.items()} | ports()
    command = Proximity(tmp_path, kafka.addresses["SASL_PLAINTEXT"], topic_prefix, **settings)
    found = findings_of(command("check", "--json"))
    assert found[f"Kafka transactional ids {ids['trigger']}*"] == ("ok", "write")
    lacking = ("bad", "this login may not write them, as exactly_once does")
    assert found[f"Kafka transactional ids {ids['connector']}*"] == lacking
    # The ids are checked, and not created: no broker has one, nor a topic for them.
    assert "__transaction_state" not in admin.list_topics(timeout=10).topics
