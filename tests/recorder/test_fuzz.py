"""Every topic of the recorder, with records made to hurt: through the decoding into real SQL.

Whatever a record says, the recorder goes on: it is counted or a dead letter, the good ones beside
it are counted, and `verify` computes the same figures independently.
"""

import asyncio
import os
import uuid
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.cli.servers import open_snapshot
from engine.cli.verify import differences, recount_of
from engine.formats.decoders import OwnFormatDecoder
from engine.kafka.detections import decode_records
from engine.recorder.readers import AuthenticationReader
from tests.recorder.scene import (
    AUTHENTICATIONS,
    DETECTIONS,
    NOTIFICATIONS,
    NOW,
    Scene,
    next_offsets,
    open_scene,
    record,
)

EXAMPLES = 1500 if "PROXIMITY_TEST_FULL" in os.environ else 40
KINDS = ("beacon", "geofence", "position", "nfc", "qrcode")
TOPICS = (DETECTIONS, NOTIFICATIONS, AUTHENTICATIONS)
DECODER = OwnFormatDecoder(path_loss_exponent=2.0)

# As they stand in JSON, well formed or not.
integers = st.sampled_from(
    [2**63 - 1, 2**63, 2**64, -(2**63) - 1, 2**31, 10**400, -1, 0, 65536, 253_402_300_800_000]
).map(lambda number: str(number).encode())
texts = st.sampled_from(
    [
        b'"\\u0000"',
        b'"a\\u0000b"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xed\xa0\x80"', b'"\xff"',
        b'""', b'"' + b"x" * 300 + b'"', b'"' + b"y" * 70_000 + b'"', '"\U0010ffff\u202e"'.encode(),
        b'"0001-01-01T00:00:00+1400"', b'"9999-12-31T23:59:59-1400"', b'"0000-00-00T00:00:00Z"',
        b'"2026-02-30T10:00:00+0100"', b'"2026-11-20T24:00:00+0000"', b'"2026-11-20T10:00:60Z"',
        b'"2026-11-20T10:00:00+9959"', '"٢٠٢٦-11-20T10:00:00Z"'.encode(), '"٣"'.encode(),
        b'"00000000-0000-0000-0000-000000000000"', b'"NaN"', b'"9223372036854775808"',
    ]
)  # fmt: skip
others = st.sampled_from(
    [
        b"null", b"true", b"1e400", b"-1e400", b"1.5", b"1e18", b"-0.0", b"NaN", b"Infinity", b"{}",
        b"[]", b"[" * 2000 + b"]" * 2000, b'{"id":' * 1500 + b"1" + b"}" * 1500, b"[" * 5000,
        b'{"id":9223372036854775808}', b'{"id":-1}', b'{"udid":"hostile","id_connector":1e30}',
    ]
)  # fmt: skip
values = integers | texts | others
timestamps = st.sampled_from([-1, 0, 2**63 - 1, -(2**62), 253_402_300_800_000, None])


class Topics:
    """All that was written to the topics."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.written: dict[str, list[Any]] = {topic: [] for topic in TOPICS}
        self.good = dict.fromkeys(TOPICS, 0)

    def whole(self, topic: str, udid: str, kind: str = "beacon") -> dict[str, Any]:
        """A valid message of a place of this kind."""
        device = {"udid": udid, "token_push": "t", "id_connector": 7, "name": "iOS"}
        at = int(NOW.timestamp()) * 1000
        if topic == AUTHENTICATIONS:
            return {"api_key": "key-1", "device": device, "authenticated_at": at, "ip": "::1"}
        kind = "geofence" if kind == "position" and topic == NOTIFICATIONS else kind
        if topic == DETECTIONS:
            rest = {"device": device, "detected_at": at, "ip": "::1", "rssi": -60, "tx_power": -59}
            return self.scene.fields()[kind] | rest
        references: dict[str, Any] = {
            "campaign": self.scene.campaign,
            "company": self.scene.company,
            "venue": self.scene.venue,
            kind: getattr(self.scene, kind),
        }
        ids = {name: {"id": each.id} for name, each in references.items()}
        return {"id": str(uuid.uuid4()), **ids, "device": device, "detected_at": at}

    async def write(self, topic: str, raw: list[tuple[bytes, int | None]]) -> None:
        """Record them, each between valid records, by a new recorder."""
        written = self.written[topic]
        begin = len(written)
        for value, timestamp in raw:
            self._add(topic, value, timestamp)
            for kind in KINDS:
                self._add(topic, orjson.dumps(self.whole(topic, "good", kind)), None)
            self.good[topic] += 1 if topic == DETECTIONS else len(KINDS)
        async with asyncio.timeout(90):
            await self.scene.recorder(topic).handle(written[begin:])

    def _add(self, topic: str, value: bytes, timestamp: int | None) -> None:
        written = self.written[topic]
        made = record(topic, len(written), value)
        if timestamp is not None:
            object.__setattr__(made, "timestamp", timestamp)
        written.append(made)


@st.composite
def hurts(draw: st.DrawFn, topics: Topics, topic: str) -> tuple[bytes, int | None]:
    """A record: a right message in which some places hold something else, or no message at all."""
    timestamp = draw(timestamps)
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=50) | values), timestamp
    message = topics.whole(topic, "hostile", draw(st.sampled_from(KINDS)))
    places = [(message, name) for name in message]
    places += [
        (inner, name) for inner in message.values() if isinstance(inner, dict) for name in inner
    ]
    hurt: dict[bytes, bytes] = {}
    for inside, name in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        mark = f"<{len(hurt)}>"
        hurt[b'"' + mark.encode() + b'"'] = draw(values)
        inside[name] = mark
    raw = orjson.dumps(message)
    for mark_, value in hurt.items():
        raw = raw.replace(mark_, value)
    return raw, timestamp


@pytest.mark.timeout(900)
@pytest.mark.parametrize("topic", TOPICS)
def test_the_recorder_continues_after_random_records(postgres_url: str, topic: str) -> None:
    with asyncio.Runner() as runner:
        context = open_scene(postgres_url)
        topics = Topics(runner.run(context.__aenter__()))
        try:
            pour_into(topics, topic, runner)
            runner.run(assert_counted(topics, topic))
        finally:
            runner.run(context.__aexit__(None, None, None))


def pour_into(topics: Topics, topic: str, runner: asyncio.Runner) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.lists(hurts(topics, topic), min_size=1, max_size=8))
    def pour(raw: list[tuple[bytes, int | None]]) -> None:
        runner.run(topics.write(topic, raw))

    pour()


async def assert_counted(topics: Topics, topic: str) -> None:
    scene, written = topics.scene, topics.written[topic]
    assert await next_offsets(scene.ledger, topic) == {0: len(written)}
    errors = scene.metrics.registry.get_sample_value("proximity_sql_errors_total")
    assert errors == 0, "no record makes SQL refuse what is written"
    assert (await scene.counters("good"))[TOPICS.index(topic) % 2] == (
        0 if topic == AUTHENTICATIONS else topics.good[topic]
    )
    async with open_snapshot(scene.database) as connection:
        recount = await recount_of(connection)
        if topic == AUTHENTICATIONS:
            malformed = len(decode_records(written, AuthenticationReader.decode).dead_letters)
        else:
            await recount.add(written, DECODER if topic == DETECTIONS else None)
            malformed = recount.malformed
        found = [each async for each in differences(connection, recount)]
    assert found == []
    assert malformed > 0
    letter_reasons = scene.letters.reasons
    strangers = {b"unknown_company", b"unknown_application"}
    assert len([each for each in letter_reasons if each not in strangers]) == (
        0 if topic == DETECTIONS else malformed
    )
