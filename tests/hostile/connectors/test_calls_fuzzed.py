"""Every record of connector-calls becomes a call that is made, or a dead letter."""

import copy
import json
import uuid
from collections import Counter
from typing import Any

import msgspec
import pytest
from aiokafka import ConsumerRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.errors import EndpointError
from connectors.model import CallFault, Content, Declined, Failed
from connectors.request import build_request
from engine.connector.call_result import CompletedCall
from engine.connector.intake import EndpointDecryptor, ReceivedCall, build_call, decode_call
from engine.kafka.decoding import decode_records
from engine.kafka.topics import Topics
from engine.redis.claims import update_argument
from engine.redis.devices import NO_ANSWER
from tests.acceptance.connectors.calls import call, publish
from tests.acceptance.connectors.customers import SECRET_KEY
from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.servers.http_service import content, serving
from tests.servers.schema import make_schema
from tests.unit.engine.test_connector_calls import CIPHER, endpoint, message

TOPICS = Topics.named("t.")
GOOD: dict[str, Any] = json.loads(msgspec.json.encode(message(connector=endpoint())))
BIG = [2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, -1]
NESTED = "[" * 50_000 + "]" * 50_000
odd = st.one_of(
    st.sampled_from(BIG),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.text(),
    st.sampled_from(["\0", "a\0b", "\ud800", "\x1b[2J", "x" * 5000, "", "１２３", "null"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _places(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [at]
    return [at, *(place for key in value for place in _places(value[key], (*at, key)))]


PLACES = [place for place in _places(GOOD) if place]


def with_value(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The good call with another value at one place."""
    changed = copy.deepcopy(GOOD)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def record(value: bytes | None) -> Any:
    size = len(value or b"")
    return ConsumerRecord("calls", 3, 5, 0, 0, b"key", value, 0, size, size, ())


def is_handled(value: bytes | None) -> bool:
    """Whether it was a call. Passes it through every step, or raises."""
    decoded_calls, dead, positions = decode_records([record(value)], decode_call)
    assert (len(decoded_calls), len(dead)) in ((1, 0), (0, 1))
    for letter in dead:
        assert letter.outgoing("t.dead-letters", 0.0).value == value
        assert positions == [0]
    for one in decoded_calls:
        _take_every_step(one)
    return bool(decoded_calls)


def _take_every_step(one: ReceivedCall) -> None:
    assert 0 <= one.message.company.id < 2**63, "SQL has no place for it"
    assert "\0" not in one.message.device.udid, "nor for that"
    for result in (
        Content(format="html", content="x"),
        Declined(),
        Failed(CallFault.TIMEOUT, "no reply in time"),
    ):
        answered = CompletedCall(one, None, result)
        answered.notification(TOPICS.notifications)
        if (letter := answered.dead_letter()) is not None:
            letter.outgoing(TOPICS.dead_letters, 0.0)
        if (update := answered.claim_update()) is not None:
            assert len(update_argument(update)) == 19 + 16 + 3 * 14
    if one.message.connector is None:
        return
    try:
        opened = EndpointDecryptor(CIPHER).decrypt(one.message.connector)
    except EndpointError:
        return
    call = build_call(one, opened, NO_ANSWER, 300.0)
    try:
        build_request(call, agent="test", now=0.0)
    except ValueError:
        return  # a call's failure: connector_request


@settings(max_examples=600, deadline=None)
@given(place=st.sampled_from(PLACES), value=odd)
def test_one_odd_value_anywhere(place: tuple[str, ...], value: Any) -> None:
    is_handled(json.dumps(with_value(place, value)).encode())


@settings(max_examples=300, deadline=None)
@given(value=st.binary(max_size=200))
def test_any_bytes(value: bytes) -> None:
    is_handled(value)


@settings(max_examples=300, deadline=None)
@given(cut=st.integers(0, 1500), flipped=st.integers(0, 1500), to=st.integers(0, 255))
def test_bytes_that_were_damaged(cut: int, flipped: int, to: int) -> None:
    raw = bytearray(json.dumps(GOOD).encode())
    raw[flipped % len(raw)] = to
    is_handled(bytes(raw[: max(1, len(raw) - cut // 10)]))


@pytest.mark.parametrize("number", BIG)
@pytest.mark.parametrize(
    "place",
    [place for place in PLACES if place[-1] in ("id", "delay", "id_connector", "major", "minor")],
)
def test_a_number_that_nothing_has_a_place_for(place: tuple[str, ...], number: int) -> None:
    is_handled(json.dumps(with_value(place, number)).encode())


def test_a_valid_record_is_a_call() -> None:
    assert is_handled(json.dumps(GOOD).encode())
    assert not is_handled(NESTED.encode())
    assert not is_handled(None)
    unknown = json.dumps(GOOD)[:-1].encode() + b', "more": ' + NESTED.encode() + b"}"
    is_handled(unknown)


@pytest.mark.timeout(120)
async def test_the_connector_continues_after_such_records(
    rig: Rig, call_topics: TopicSet, kafka_bootstrap: str, redis_url: str, postgres_url: str
) -> None:
    await make_schema(postgres_url)
    await call_topics.create()
    async with serving(content()) as service:
        settings = {"REDIS_URL": redis_url, "DATABASE_URL": postgres_url, "SECRET_KEY": SECRET_KEY}
        connector = rig.start(
            "run", "--role", "connector", **settings, CONNECTOR_ALLOW_NETWORKS="127.0.0.0/8"
        )
        await connector.until_ready()
        good = [call(service.url(), f"phone {number}") for number in range(12)]
        bad = [json.dumps(with_value(("company", "id"), number)).encode() for number in BIG]
        bad += [
            json.dumps({**with_value(("device", "udid"), udid), "id": str(uuid.uuid4())}).encode()
            for udid in ("\0", "a\0b", "\ud800", "", "x" * 256)
        ]
        bad += [NESTED.encode(), b'{"id":' + b"9" * 100_000 + b"}"]
        values: list[Any] = [each for pair in zip(bad, good, strict=False) for each in pair]
        await publish(
            kafka_bootstrap, call_topics.name("connector-calls"), [*values, *bad[12:], *good]
        )
        await call_topics.until_done()
        assert connector.process.poll() is None, connector.output
        await connector.stop()
        assert {received.id for received in service.received} >= {each.id for each in good}
    letters = await call_topics.read("dead-letters")
    reasons = Counter(dict(letter.headers)["reason"].decode() for letter in letters)
    assert set(reasons) >= {"malformed_json", "invalid_field"}
