"""Records of connector-calls: what they ask for, and what results lead to."""

import copy
import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.secrets import open_cipher
from connectors.errors import EndpointError
from connectors.model import (
    CallFault,
    CallResult,
    Content,
    Declined,
    Failed,
    HttpMethod,
    ParameterPlace,
)
from connectors.request import build_request
from engine.connector.calls import EndpointDecryptor, PendingCall, build_call, decode_call
from engine.kafka.detections import Record, decode_records
from engine.kafka.messages import ConnectorCall, KnownDevice, Notification, PlaceReference
from engine.kafka.topics import Topics
from engine.redis.claims import update_arguments
from engine.redis.devices import NO_ANSWER, DeviceRecord
from tests.connectors.calls import ENDPOINT, ID, connector_endpoint, document, message
from tests.kafka.records import record

CIPHER = open_cipher("a passphrase for tests")
TOPICS = Topics.of("t.")
CONTENT = Content(format="url", content="https://e.org/", title="T", push="P")


def decode(each: Record) -> PendingCall:
    return decode_call(each, TOPICS.notifications)


def received(**fields: Any) -> PendingCall:
    decoded = decode_records([record(msgspec.json.encode(message(**fields)))], decode)
    assert decoded.dead_letters == []
    (one,) = decoded.messages
    return one


def answered(result: CallResult, known: DeviceRecord | None = None, **fields: Any) -> PendingCall:
    one = received(**fields)
    one.known, one.result = known, result
    return one


def test_an_endpoint_is_opened() -> None:
    stored = connector_endpoint(
        method="get",
        auth="Get",
        parameters=CIPHER.encrypt('[{"key": "a", "value": "é"}, {"key": "b", "value": ""}]'),
        secret=CIPHER.encrypt("whsec_x"),
    )
    opened = EndpointDecryptor(CIPHER).decrypt(stored)
    assert (opened.method, opened.place) == (HttpMethod.GET, ParameterPlace.QUERY)
    assert opened.parameters == (("a", "é"), ("b", ""))
    assert opened.secret == "whsec_x"


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "PUT"},
        {"auth": "body"},
        {"parameters": "in the clear"},
        {"secret": "in the clear"},
        {"parameters": CIPHER.encrypt('[{"key": 1, "value": "x"}]')},
    ],
)
def test_an_endpoint_that_cannot_be_used(fields: dict[str, str]) -> None:
    with pytest.raises(EndpointError) as caught:
        EndpointDecryptor(CIPHER).decrypt(connector_endpoint(**fields))
    assert "in the clear" not in str(caught.value)


@pytest.mark.parametrize(
    ("known", "id_received", "test", "id_connector"),
    [
        (None, 5, False, 5),
        (NO_ANSWER, 5, None, 5),
        (DeviceRecord(1, 77, True), None, True, 77),
        (DeviceRecord(1, 77, False), 5, False, 5),
    ],
)
def test_the_document_that_a_service_receives(
    known: DeviceRecord | None, id_received: int | None, test: bool | None, id_connector: int
) -> None:
    phone = KnownDevice(udid="phone", name="android", id_connector=id_received)
    one = received(device=phone, push="long" * 1024)
    one.known = known
    call = build_call(one, ENDPOINT, 300.0)
    assert call.document == document(ID, "phone", test=test, id_connector=id_connector)
    assert call.weight == 3, "its record is large"


def test_content_becomes_a_notification_that_keeps_everything_else() -> None:
    out = answered(CONTENT, DeviceRecord(4, 77, False)).notification()
    assert (out.topic, out.key) == ("t.notifications", "phone é".encode())
    assert out.headers == [("id", ID.encode()), ("campaign", b"7")]
    got = msgspec.json.decode(out.value or b"", type=Notification)
    sent = message()
    ours = {"title", "push", "device"}
    same = {*Notification.__struct_fields__} & {*ConnectorCall.__struct_fields__} - ours
    assert all(getattr(got, name) == getattr(sent, name) for name in same)
    assert (got.format, got.url, got.title, got.push) == ("url", "https://e.org/", "T", "P")
    assert got.device == KnownDevice(
        udid="phone é", name="ios", token_push="push me", id=4, id_connector=77
    )
    assert "connector" not in json.loads(out.value or b"")


@pytest.mark.parametrize(
    ("result", "delay", "keep"),
    [
        (CONTENT, 3600, 3600),
        (CONTENT, 0, None),
        (Declined(), 3600, 60),
        (Declined(), 60, None),
        (Declined(), 0, None),
        (Failed(CallFault.TIMEOUT, ""), 3600, 0),
        (Failed(CallFault.TIMEOUT, ""), 0, None),
    ],
)
def test_the_claim_update_of_each_result(result: CallResult, delay: int, keep: int | None) -> None:
    update = answered(result, delay=delay).claim_update()
    assert (None if update is None else update.keep) == keep


NO_BEACON: dict[str, Any] = {"beacon": None, "proximity": None}
DOOR = PlaceReference(12, "door")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *((kind, NO_BEACON | {kind: DOOR}) for kind in ("geofence", "nfc", "qrcode")),
        ("beacon", {"proximity": None, "on": "exit"}),  # by silence
    ],
)
def test_a_place_without_proximity(kind: str, fields: dict[str, Any]) -> None:
    one = answered(CONTENT, **fields)
    call = build_call(one, ENDPOINT, 300.0)
    body, age = call.document, call.fresh_until - 300 - one.detected_at
    assert age == (1 if kind == "beacon" else 0), "an exit is fresh when it is triggered"
    for each in (body, json.loads(one.notification().value or b"")):
        assert {"beacon", "proximity", "geofence", "nfc", "qrcode"} & each.keys() == {kind}


@pytest.mark.parametrize("fields", [NO_BEACON, {"nfc": DOOR}, {"beacon": None, "nfc": DOOR}])
def test_a_call_has_one_place(fields: dict[str, Any]) -> None:
    assert not is_handled(msgspec.json.encode(message(**fields)))


GOOD: dict[str, Any] = json.loads(msgspec.json.encode(message(connector=connector_endpoint())))
BIG = [2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, -1]
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


def is_handled(value: bytes | None) -> bool:
    """Whether it was a call. Passes it through every step, or raises."""
    decoded_calls, dead = decode_records([record(value)], decode)
    assert (len(decoded_calls), len(dead)) in ((1, 0), (0, 1))
    for letter in dead:
        assert letter.outgoing("t.dead-letters", 0.0).value == value
    for one in decoded_calls:
        _take_every_step(one)
    return bool(decoded_calls)


def _take_every_step(one: PendingCall) -> None:
    assert 0 <= one.message.company.id < 2**63, "SQL has no place for it"
    assert "\0" not in one.message.device.udid, "nor for that"
    for result in (
        Content(format="html", content="x"),
        Declined(),
        Failed(CallFault.TIMEOUT, "no reply in time"),
    ):
        one.result = result
        if isinstance(result, Content):
            one.notification()
        if (letter := one.dead_letter()) is not None:
            letter.outgoing(TOPICS.dead_letters, 0.0)
        if (update := one.claim_update()) is not None:
            _, owner, *numbers, _, _ = update_arguments(update)
            assert len(cast(bytes, owner)) == 16
            assert all(len(str(number)) <= 14 for number in numbers), "the digits of a claim's time"
    if one.message.connector is None:
        return
    try:
        opened = EndpointDecryptor(CIPHER).decrypt(one.message.connector)
    except EndpointError:
        return
    call = build_call(one, opened, 300.0)
    try:
        build_request(call, agent="test", now=0.0)
    except ValueError:
        return  # a call's failure: connector_request


@settings(max_examples=600, deadline=None)
@given(place=st.sampled_from(PLACES), value=odd)
def test_one_odd_value_anywhere(place: tuple[str, ...], value: Any) -> None:
    is_handled(json.dumps(with_value(place, value)).encode())


def test_a_valid_record_is_a_call() -> None:
    assert is_handled(json.dumps(GOOD).encode())
    assert not is_handled(b"[" * 50_000)
    assert not is_handled(None)
