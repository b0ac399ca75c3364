"""The registry's client: bounded in time, patient in a role, plain in a command."""

import asyncio
import base64
from typing import Any

import pytest

from engine.cli.check import check_registry, findings
from engine.formats.decoders import detection_decoders
from engine.kafka.dead_letters import DeadLetterReason
from engine.process.errors import SchemaRegistryError
from engine.process.metrics import Metrics
from engine.process.settings_sources import load_settings, shown
from tests.formats import registered
from tests.formats.records import TOPIC, report
from tests.formats.registered import avro, detection, framed
from tests.servers.http_service import Answer, ReceivedRequest, hanging, replying, resetting
from tests.servers.schema_registry import SchemaRegistryService
from tests.servers.waiting import eventually

RECORD = report(framed(7, avro(detection(detected_at=1_795_165_200_000_000, rssi=-50))))


def settings(registry: SchemaRegistryService, user: str = "", **more: Any):
    return load_settings(
        detection_topics=f"{TOPIC}=avro", schema_registry_url=registry.address(user), **more
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (replying(500, b"{}"), "the schema registry answers 500 to /schemas/ids/7"),
        (resetting, "does not answer: ReadError"),
        (hanging, "does not answer: TimeoutError"),
    ],
)
async def test_a_command_ends_with_what_is_wrong(
    answer: Answer, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = 0.3 if answer is hanging else 30.0
    monkeypatch.setattr("engine.formats.registry.REGISTRY_SECONDS", deadline)
    async with SchemaRegistryService({7: registered.AVRO}).running() as registry:
        registry.answer = answer
        decoder = detection_decoders(settings(registry))[TOPIC]
        with pytest.raises(SchemaRegistryError, match=expected.replace("[", r"\[")):
            await decoder.decode([RECORD])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (replying(200, b"{}"), "is not a registry's"),
        (replying(200, b"[" * 100_000), "is not a registry's"),
        (replying(200, b'{"schema":"' + b"x" * 5_000_000 + b'"}'), "is not a registry's"),
    ],
)
async def test_an_answer_that_is_no_schema_makes_a_dead_letter(
    answer: Answer, expected: str
) -> None:
    async with SchemaRegistryService({7: registered.AVRO}).running() as registry:
        registry.answer = answer
        decoder = detection_decoders(settings(registry))[TOPIC]
        (letter,) = (await decoder.decode([RECORD])).dead_letters
        assert expected in letter.detail


async def test_a_role_waits_until_the_registry_answers() -> None:
    metrics = Metrics()
    async with SchemaRegistryService({7: registered.AVRO}).running() as registry:
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
    "refusal",
    [
        replying(403, b"{}"),
        replying(302, location="http://127.0.0.1:1/"),
    ],
)
async def test_a_schema_that_alone_is_refused_makes_dead_letters(refusal: Answer) -> None:
    """It is not requested for ever: the registry answers for the others."""
    async with SchemaRegistryService({7: registered.AVRO}).running() as registry:

        async def refuse_one(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            one = refusal if request.target.endswith("/8") else registry.reply
            await one(request, writer)

        registry.answer = refuse_one
        decoders = detection_decoders(settings(registry), registry_errors=Metrics().registry_errors)
        records = [report(framed(8, b"x")), RECORD]
        async with asyncio.timeout(90):
            decoded = await decoders[TOPIC].decode(records)
    assert len(decoded.messages) == 1
    assert [letter.reason for letter in decoded.dead_letters] == [DeadLetterReason.INVALID_FIELD]


async def test_the_login_of_the_url() -> None:
    async with SchemaRegistryService({7: registered.AVRO}).running() as registry:
        token = base64.b64encode(b"me:p@ss").decode()
        registry.authorization = f"Basic {token}"
        given = settings(registry, "me:p%40ss@")
        assert len((await detection_decoders(given)[TOPIC].decode([RECORD])).messages) == 1
        with pytest.raises(SchemaRegistryError, match="401"):
            await detection_decoders(settings(registry))[TOPIC].decode([RECORD])
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
async def test_check_covers_it(answer: Answer, state: str, expected: str) -> None:
    async with SchemaRegistryService().running() as registry:
        registry.answer = answer
        (found,) = await findings(check_registry, settings(registry, "me:secret@"))
        assert registry.requested == ["/schemas/types"]
    assert (found.state, found.subject) == (state, "reachable")
    assert expected in found.result
    assert "secret" not in found.result
