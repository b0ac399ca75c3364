"""The pieces of the connector role: endpoints decrypted, results into messages and claims."""

import json
from typing import Any

import msgspec
import pytest
from aiokafka import ConsumerRecord

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
from engine.connector.call_result import CompletedCall
from engine.connector.intake import EndpointDecryptor, ReceivedCall, build_call, decode_call
from engine.kafka.dead_letters import DeadLetterReason
from engine.kafka.decoding import decode_records
from engine.kafka.messages import (
    BeaconReference,
    CampaignReference,
    CompanyReference,
    ConnectorCall,
    ConnectorEndpoint,
    KnownDevice,
    Notification,
    VenueReference,
)
from engine.kafka.topics import Topics
from engine.redis.devices import NO_ANSWER, DeviceRecord
from tests.unit.connectors.calls import ENDPOINT, ID

CIPHER = open_cipher("a passphrase for tests")
TOPICS = Topics.named("t.")
CONTENT = Content(format="url", content="https://e.org/", title="T", push="P")


def message(**fields: Any) -> ConnectorCall:
    values: dict[str, Any] = {
        "id": ID,
        "campaign": CampaignReference(7, "Café", "hash"),
        "company": CompanyReference(1),
        "venue": VenueReference(8, "Hall"),
        "beacon": BeaconReference(9, "door", "f7826da6-4fa2-4e98-8024-bc5b71e0893e", 1, 2),
        "proximity": "near",
        "device": KnownDevice(udid="phone é", name="ios", token_push="push me"),
        "title": "campaign's",
        "push": "campaign's push",
        "background": "#fff",
        "color": None,
        "detected_at": "2026-11-20T10:00:00+0000",
        "triggered_at": "2026-11-20T10:00:01+0000",
        "expires_at": "2026-11-20T10:05:00+0000",
        "delay": 3600,
    }
    return ConnectorCall(**(values | fields))


def received(offset: int = 5, **fields: Any) -> ReceivedCall:
    value = msgspec.json.encode(message(**fields))
    record: Any = ConsumerRecord(
        "calls", 3, offset, 0, 0, b"key", value, 0, len(value), len(value), ()
    )
    decoded = decode_records([record], decode_call)
    assert decoded.dead_letters == []
    (one,) = decoded.messages
    return one


def answered(result: CallResult, known: DeviceRecord | None = None, **fields: Any) -> CompletedCall:
    return CompletedCall(received(**fields), known, result)


def endpoint(**fields: Any) -> ConnectorEndpoint:
    values: dict[str, Any] = {
        "id": 1,
        "name": "c",
        "url": "https://e.org/",
        "method": "POST",
        "auth": "header",
    }
    return ConnectorEndpoint(**(values | fields))


def test_an_endpoint_is_opened() -> None:
    stored = endpoint(
        method="get",
        auth="Get",
        parameters=CIPHER.encrypt('[{"key": "a", "value": "é"}, {"key": "b", "value": ""}]'),
        secret=CIPHER.encrypt("whsec_x"),
    )
    opened = EndpointDecryptor(CIPHER).decrypt(stored)
    assert (opened.method, opened.place) == (HttpMethod.GET, ParameterPlace.QUERY)
    assert opened.parameters == (("a", "é"), ("b", ""))
    assert opened.secret == "whsec_x"


def test_an_endpoint_without_secrets_needs_no_key() -> None:
    assert EndpointDecryptor(None).decrypt(endpoint()).parameters == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "PUT"},
        {"auth": "body"},
        {"parameters": "in the clear"},
        {"secret": "in the clear"},
        {"parameters": CIPHER.encrypt("no json")},
        {"parameters": CIPHER.encrypt('{"a": 1}')},
        {"parameters": CIPHER.encrypt('[{"key": 1, "value": "x"}]')},
    ],
)
def test_an_endpoint_that_cannot_be_used(fields: dict[str, str]) -> None:
    with pytest.raises(EndpointError) as caught:
        EndpointDecryptor(CIPHER).decrypt(endpoint(**fields))
    assert "in the clear" not in str(caught.value)


def test_without_a_key_secrets_stay_closed() -> None:
    with pytest.raises(EndpointError, match="PROXIMITY_SECRET_KEY"):
        EndpointDecryptor(None).decrypt(endpoint(parameters=CIPHER.encrypt("[]")))


@pytest.mark.parametrize(
    ("known", "id_received", "test", "id_connector"),
    [
        (None, None, False, None),
        (None, 5, False, 5),
        (NO_ANSWER, None, None, None),
        (NO_ANSWER, 5, None, 5),
        (DeviceRecord(1, 77, True), None, True, 77),
        (DeviceRecord(1, 77, False), 5, False, 5),
    ],
)
def test_the_device_fields_that_a_service_receives(
    known: DeviceRecord | None,
    id_received: int | None,
    test: bool | None,
    id_connector: int | None,
) -> None:
    one = received(device=KnownDevice(udid="phone", id_connector=id_received))
    device = build_call(one, ENDPOINT, known, 300.0).device
    assert (device.test, device.id_connector) == (test, id_connector)


def test_freshness_ends_with_the_detection_s() -> None:
    assert build_call(received(), ENDPOINT, None, 300.0).fresh_until == 1_795_169_100.0


def test_content_becomes_a_notification_that_keeps_everything_else() -> None:
    out = answered(CONTENT, DeviceRecord(4, 77, False)).notification(TOPICS.notifications)
    assert out is not None
    assert (out.topic, out.key) == ("t.notifications", "phone é".encode())
    assert out.headers == [("id", ID.encode()), ("campaign", b"7")]
    got = msgspec.json.decode(out.value or b"", type=Notification)
    sent = message()
    same = [n for n in Notification.__struct_fields__ if n in ConnectorCall.__struct_fields__]
    assert {n: getattr(got, n) for n in same if n not in ("title", "push", "device")} == {
        n: getattr(sent, n) for n in same if n not in ("title", "push", "device")
    }
    assert (got.format, got.url, got.title, got.push) == ("url", "https://e.org/", "T", "P")
    assert got.device == KnownDevice(
        udid="phone é", name="ios", token_push="push me", id=4, id_connector=77
    )
    assert "connector" not in json.loads(out.value or b"")


def test_title_and_push_default_to_the_campaign_s() -> None:
    out = answered(Content(format="html", content="x")).notification(TOPICS.notifications)
    body = json.loads((out and out.value) or b"")
    assert (body["title"], body["push"], body["html"]) == ("campaign's", "campaign's push", "x")


def test_a_refusal_sends_nothing() -> None:
    one = answered(Declined())
    assert (one.notification(TOPICS.notifications), one.dead_letter()) == (None, None)


@pytest.mark.parametrize("fault", list(CallFault))
def test_every_fault_is_a_reason_of_dead_letters(fault: CallFault) -> None:
    one = answered(Failed(fault, "why"))
    letter = one.dead_letter()
    assert letter is not None
    assert one.notification(TOPICS.notifications) is None
    out = letter.outgoing(TOPICS.dead_letters, 0.0)
    assert dict(out.headers)["reason"].decode() == DeadLetterReason(fault.value) == one.outcome
    assert (out.topic, out.key, out.value) == ("t.dead-letters", b"key", one.record.value)


@pytest.mark.parametrize(
    ("result", "delay", "keep"),
    [
        (CONTENT, 3600, None),
        (Declined(), 3600, 60),
        (Declined(), 61, 60),
        (Declined(), 60, None),
        (Declined(), 5, None),
        (Declined(), 0, None),
        (Failed(CallFault.TIMEOUT, ""), 3600, 0),
        (Failed(CallFault.TIMEOUT, ""), 1, 0),
        (Failed(CallFault.TIMEOUT, ""), 0, None),
    ],
)
def test_the_claim_update_of_each_result(result: CallResult, delay: int, keep: int | None) -> None:
    update = answered(result, delay=delay).claim_update()
    assert (None if update is None else update.keep) == keep


def test_a_notification_too_large_is_a_failure() -> None:
    one = answered(CONTENT).too_large(5_000_000)
    assert one.outcome == "too_large"
    update = one.claim_update()
    assert update is not None
    assert update.keep == 0
