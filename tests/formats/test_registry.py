"""The registry's client: bounded in time, patient in a role, plain in a command."""

import asyncio
import base64

import pytest

from engine.cli.check import check_registry, findings
from engine.formats.decoders import detection_decoders
from engine.kafka.dead_letters import DeadLetterReason
from engine.process.errors import SchemaRegistryError
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings, shown
from tests.formats import registered
from tests.formats.records import TOPIC, report
from tests.formats.registered import avro, dead_letter_text, detection, framed, registered_decoder
from tests.servers.http_service import Answer, ReceivedRequest, hanging, replying, resetting
from tests.servers.schema_registry import SchemaRegistryService
from tests.servers.waiting import eventually

RECORD = report(framed(7, avro(detection(detected_at=1_795_165_200_000_000, rssi=-50))))


@pytest.fixture
def registry(registry: SchemaRegistryService) -> SchemaRegistryService:
    registry.schemas[7] = registered.AVRO
    return registry


def settings(registry: SchemaRegistryService, user: str = "") -> Settings:
    url = registry.address(user)
    return load_settings(detection_topics=f"{TOPIC}=avro", schema_registry_url=url)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (replying(500, b"{}"), "the schema registry answers 500 to /schemas/ids/7"),
        (resetting, "does not answer: ReadError"),
        (hanging, "does not answer: TimeoutError"),
    ],
)
async def test_a_command_ends_with_what_is_wrong(
    registry: SchemaRegistryService,
    answer: Answer,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deadline = 0.3 if answer is hanging else 30.0
    monkeypatch.setattr("engine.formats.registry.REGISTRY_SECONDS", deadline)
    registry.answer = answer
    with pytest.raises(SchemaRegistryError, match=expected):
        await registered_decoder(registry, "avro").decode([RECORD])


@pytest.mark.parametrize(
    "body", [b"{}", b"[" * 100_000, b'{"schema":"' + b"x" * 5_000_000 + b'"}'], ids=len
)
async def test_an_answer_that_is_no_schema_makes_a_dead_letter(
    registry: SchemaRegistryService, body: bytes
) -> None:
    registry.answer = replying(200, body)
    assert "is not a registry's" in await dead_letter_text(registry, "avro", RECORD.value)


async def test_a_role_waits_until_the_registry_answers(
    registry: SchemaRegistryService, metrics: Metrics
) -> None:
    registry.answer = replying(503, b"{}")
    decoders = detection_decoders(settings(registry), registry_errors=metrics.registry_errors)
    waiting = asyncio.create_task(decoders[TOPIC].decode([RECORD]))
    await eventually(lambda: len(registry.requested) > 2, what="it was requested again")
    assert not waiting.done()
    registry.answer = registry.reply
    assert len((await waiting).messages) == 1
    failed = metrics.registry.get_sample_value("proximity_registry_errors_total")
    assert failed == len(registry.requested) - 1


@pytest.mark.parametrize(
    "refusal", [replying(403, b"{}"), replying(302, location="http://127.0.0.1:1/")]
)
async def test_a_schema_that_alone_is_refused_makes_dead_letters(
    registry: SchemaRegistryService, metrics: Metrics, refusal: Answer
) -> None:
    """It is not requested for ever: the registry answers for the others."""

    async def refuse_one(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        one = refusal if request.target.endswith("/8") else registry.reply
        await one(request, writer)

    registry.answer = refuse_one
    decoders = detection_decoders(settings(registry), registry_errors=metrics.registry_errors)
    async with asyncio.timeout(90):
        decoded = await decoders[TOPIC].decode([report(framed(8, b"x")), RECORD])
    assert len(decoded.messages) == 1
    assert [letter.reason for letter in decoded.dead_letters] == [DeadLetterReason.INVALID_FIELD]


async def test_the_login_of_the_url(registry: SchemaRegistryService) -> None:
    token = base64.b64encode(b"me:p@ss").decode()
    registry.authorization = f"Basic {token}"
    given = settings(registry, "me:p%40ss@")
    assert len((await detection_decoders(given)[TOPIC].decode([RECORD])).messages) == 1
    with pytest.raises(SchemaRegistryError, match="401"):
        await registered_decoder(registry, "avro").decode([RECORD])
    assert "p%40ss" not in shown(given.schema_registry_url)
    assert registry.received[0].headers["host"] == f"127.0.0.1:{registry.port}"


@pytest.mark.parametrize(
    ("answer", "state", "expected"),
    [
        (replying(200, ["JSON", "PROTOBUF", "AVRO"]), "ok", ", status 200"),
        (replying(401, {}), "bad", ", status 401"),
        (resetting, "bad", "does not answer"),
    ],
)
async def test_check_covers_it(
    registry: SchemaRegistryService, answer: Answer, state: str, expected: str
) -> None:
    registry.answer = answer
    (found,) = await findings(check_registry, settings(registry, "me:secret@"))
    assert registry.requested == ["/schemas/types"]
    assert (found.state, found.subject) == (state, "reachable")
    assert expected in found.result
    assert "secret" not in found.result
