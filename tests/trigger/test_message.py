"""Composed messages: their ids, that they are byte for byte what msgspec writes for the published
types, and the published schemas of these."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import jsonschema
import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.index.entries import ConnectorEntry
from docs.write_schemas import DIRECTORY, documents
from engine.kafka.messages import (
    CampaignReference,
    ConnectorCall,
    ConnectorEndpoint,
    KnownDevice,
    Notification,
    ReceivedDevice,
    format_instant,
)
from engine.redis.devices import DeviceRecord, completed_device
from engine.trigger.message import Message, MessageWriter
from engine.trigger.place_cache import IndexedPlace
from rules.model import (
    BeaconSnapshot,
    CampaignSnapshot,
    GeofenceSnapshot,
    Place,
    TagSnapshot,
    VenueSnapshot,
    Zone,
)
from rules.visits import Visit, VisitEvent, VisitEventType
from tests.kafka import records
from tests.rules.records import campaign
from tests.trigger.samples import TOPICS, decoded, granted, notification_id, written

LIFETIME = 300.5
NOW = 1_795_165_260.25

ids = st.integers(1, 2**31)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
maybe = st.none() | texts
connectors = st.builds(ConnectorEntry, **dict.fromkeys(("id", "company_id"), ids), secret=maybe)
campaigns = st.builds(
    CampaignSnapshot,
    id=ids,
    hash=maybe,
    active=st.just(True),
    format=st.sampled_from(("template", "url", "html", "connector")),
    content=maybe,
    background=maybe,
    color=maybe,
    delay=st.integers(0, 10**9),
    start=st.just(datetime(2026, 1, 1, tzinfo=UTC)),
    end=st.just(datetime(2027, 1, 1, tzinfo=UTC)),
    start_minute=st.just(0),
    end_minute=st.just(1440),
    weekdays=st.just(127),
)
of_places: dict[str, Any] = {
    "id": ids,
    "name": texts,
    "active": st.just(True),
    "venue": st.builds(VenueSnapshot, id=ids, name=texts, company_id=ids, active=st.just(True)),
}
numbers = st.integers(0, 65535)
places = (
    st.builds(
        BeaconSnapshot,
        uuid=st.just(records.UUID),
        major=numbers,
        minor=numbers,
        reach=st.just(Zone.FAR),
        **of_places,
    )
    | st.builds(GeofenceSnapshot, **of_places)
    | st.builds(TagSnapshot, kind=st.sampled_from(("nfc", "qrcode")), value=texts, **of_places)
)
of_devices: dict[str, Any] = {"id_connector": st.none() | ids}
of_devices |= dict.fromkeys(("name", "version", "model", "token_push"), maybe)
udids = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
devices = st.builds(ReceivedDevice, udid=udids, **of_devices)
device_records = st.builds(DeviceRecord, id=st.none() | ids, test=st.booleans(), **of_devices)


def as_types_say(message: Message, id_: str, device: KnownDevice) -> bytes:
    """The message without fragments."""
    campaign, beacon = message.campaign, message.decided.beacon
    decided, at = message.decided, message.decided.detected_at
    assert beacon is not None
    firing: dict[str, Any] = {
        "id": id_,
        "campaign": CampaignReference(campaign.id, campaign.name, campaign.hash),
        "company": beacon.company_reference,
        "venue": beacon.venue_reference,
        beacon.place.kind: beacon.reference,
        "device": device,
        "title": campaign.title,
        "push": campaign.push,
        "background": campaign.background,
        "color": campaign.color,
        "detected_at": format_instant(at),
        "triggered_at": format_instant(NOW),
        "expires_at": format_instant(at + LIFETIME),
    }
    if isinstance(beacon.place, BeaconSnapshot):
        firing["proximity"] = decided.zone.name.lower()
    event = decided.event
    if event is not None:
        firing |= {"on": event.type, "visit_id": str(event.visit.uuid)}
        if event.type == "exit":
            firing["expires_at"] = format_instant(NOW + LIFETIME)
    if campaign.format != "connector":
        content: dict[str, Any] = {"format": campaign.format, campaign.format: campaign.content}
        return msgspec.json.encode(Notification(**content, **firing))
    endpoint = None
    if (entry := beacon.connector) is not None:
        fields = {name: getattr(entry, name) for name in ConnectorEndpoint.__struct_fields__}
        endpoint = ConnectorEndpoint(**fields)
    return msgspec.json.encode(ConnectorCall(delay=campaign.delay, connector=endpoint, **firing))


@settings(max_examples=150, deadline=None)
@given(
    made=st.lists(campaigns, min_size=1, max_size=3),
    place=places,
    connector=st.none() | connectors,
    device=devices,
    record=st.none() | device_records,
    zone=st.sampled_from(("immediate", "near", "far")),
    detected_at=st.integers(978_307_200_000, 2**42),
    moment=st.sampled_from((None, "enter", "dwell", "exit")),
)
def test_a_message_matches_its_type(
    made: list[CampaignSnapshot],
    place: Place,
    connector: ConnectorEntry | None,
    device: ReceivedDevice,
    record: DeviceRecord | None,
    zone: str,
    detected_at: int,
    moment: VisitEventType | None,
) -> None:
    sent = {"proximity": zone, "detected_at": detected_at, "device": msgspec.to_builtins(device)}
    detection = decoded(**sent)
    indexed = IndexedPlace(place, made, connector)
    # The second time from what is remembered.
    decided = granted(*made, *made, detection=detection, beacon=indexed)
    decided.known = record
    if moment is not None:
        visit = Visit("beacon", 1, (), bytes(range(16)), 30, 0, 0)
        decided.event = VisitEvent(moment, (1, device.udid), visit)
    messages = MessageWriter(topics=TOPICS, lifetime=LIFETIME).write([decided], NOW)
    assert decided.unsent == len(messages)
    for message in messages:
        id_ = str(UUID(bytes=message.notification_id))
        assert message.value == as_types_say(message, id_, completed_device(device, record))
        assert message.headers == [("id", id_.encode()), ("campaign", b"%d" % message.campaign.id)]
        is_call = message.campaign.format == "connector"
        topic = TOPICS.connector_calls if is_call else TOPICS.notifications
        assert (message.topic, message.key) == (topic, device.udid.encode())
        assert message.span is None


def test_an_id_names_campaign_device_and_record_and_is_the_same_in_every_version() -> None:
    """A consumer knows a notification that is sent again by its id."""
    detection, namespace = decoded(), UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42")
    name = ["7", "device-1", "proximity.detections", "3", "7", "1795165200000"]
    made = UUID(bytes=notification_id(detection, campaign(id=7)))
    assert made == uuid5(namespace, "\0".join(name))
    third = msgspec.structs.replace(detection, index=2)  # of the record's detections
    made = UUID(bytes=notification_id(third, campaign(id=7)))
    assert made == uuid5(namespace, "\0".join([*name, "2"]))


@pytest.mark.parametrize("name", [n for n in ReceivedDevice.__struct_fields__ if n != "udid"])
def test_a_device_that_the_catalog_knows_keeps_what_it_said(name: str) -> None:
    """A field of the message is neither lost nor replaced, whatever the catalog has."""
    said: Any = 7 if name == "id_connector" else "said"
    known = DeviceRecord(1, 2, False, "p", "n", "v", "m")
    completed = completed_device(
        ReceivedDevice(**{"udid": "d", "time_zone": "UTC", name: said}), known
    )
    assert getattr(completed, name) == said
    assert (completed.udid, completed.id) == ("d", 1)
    assert None not in msgspec.structs.astuple(completed)


def test_cached_fragments_are_bounded() -> None:
    """Contents of 1 MB each, of which the bound holds a few; each message has its own."""
    writer = MessageWriter(topics=TOPICS, lifetime=LIFETIME)
    for number in range(40):
        one = campaign(id=number, format="html", content=str(number) * 500_000)
        (message,) = writer.write([granted(one)], NOW)
        assert msgspec.json.decode(message.value or b"")["html"] == one.content
        held = sum(len(each.content) for each in writer._known.values())
        assert held <= 8 * 1024 * 1024


def test_the_published_files_are_the_generated_ones():
    assert {path.name: path.read_text() for path in DIRECTORY.iterdir()} == documents()


def validator(name: str) -> Any:
    schema = orjson.loads((DIRECTORY / f"{name}.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_messages_match_the_published_schemas():
    both = granted(campaign(), campaign(id=8, format="connector", content=None))
    notification, call = (orjson.loads(each.value or b"") for each in written(both))
    validator("notifications").validate(notification)
    validator("connector-calls").validate(call)
