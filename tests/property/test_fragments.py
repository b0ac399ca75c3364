"""A spliced message is byte for byte what msgspec writes for the published types."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.index.entries import ConnectorEntry
from engine.kafka.detections import decode_record
from engine.kafka.messages import (
    CampaignReference,
    ConnectorCall,
    ConnectorEndpoint,
    KnownDevice,
    Notification,
)
from engine.kafka.timestamps import format_instant
from engine.kafka.topics import Topics
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.compose import Composer
from engine.trigger.grants import Grant
from rules.model import BeaconSnapshot, CampaignSnapshot, Reason, VenueSnapshot, Zone
from rules.outcome import Decision
from tests.unit.engine import records

NO_LOOKUP: Any = None  # `compose` is given the device
LIFETIME = 300.5
NOW = 1_795_165_260.25

ids = st.integers(1, 2**31)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
maybe = st.none() | texts
connectors = st.builds(
    ConnectorEntry,
    id=ids,
    company_id=ids,
    name=texts,
    url=texts,
    method=texts,
    auth=texts,
    parameters=texts,
    secret=maybe,
)
campaigns = st.builds(
    CampaignSnapshot,
    id=ids,
    name=texts,
    hash=maybe,
    active=st.just(True),
    title=texts,
    push=texts,
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
venues = st.builds(VenueSnapshot, id=ids, name=texts, company_id=ids, active=st.just(True))
beacons = st.builds(
    BeaconSnapshot,
    id=ids,
    name=texts,
    uuid=st.just(records.UUID),
    major=st.integers(0, 65535),
    minor=st.integers(0, 65535),
    active=st.just(True),
    reach=st.just(Zone.FAR),
    venue=venues,
)
devices = st.builds(
    KnownDevice,
    udid=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40),
    name=maybe,
    version=maybe,
    model=maybe,
    token_push=maybe,
    id_connector=st.none() | ids,
    id=st.none() | ids,
)


def as_types_say(grant: Grant, id_: str, device: KnownDevice) -> bytes:
    """The message without fragments."""
    campaign, beacon, at = grant.campaign, grant.beacon, grant.detection.detected_at
    firing: dict[str, Any] = {
        "id": id_,
        "campaign": CampaignReference(campaign.id, campaign.name, campaign.hash),
        "company": beacon.company_reference,
        "venue": beacon.venue_reference,
        "beacon": beacon.reference,
        "proximity": grant.detection.zone.name.lower(),
        "device": device,
        "title": campaign.title,
        "push": campaign.push,
        "background": campaign.background,
        "color": campaign.color,
        "detected_at": format_instant(at),
        "triggered_at": format_instant(NOW),
        "expires_at": format_instant(at + LIFETIME),
    }
    if campaign.format != "connector":
        content: dict[str, Any] = {"format": campaign.format, campaign.format: campaign.content}
        return msgspec.json.encode(Notification(**content, **firing))
    endpoint = None
    if (entry := beacon.connector) is not None:
        fields = {name: getattr(entry, name) for name in ConnectorEndpoint.__struct_fields__}
        endpoint = ConnectorEndpoint(**fields)
    return msgspec.json.encode(ConnectorCall(delay=campaign.delay, connector=endpoint, **firing))


@settings(max_examples=200, deadline=None)
@given(
    made=st.lists(campaigns, min_size=1, max_size=3),
    beacon=beacons,
    connector=st.none() | connectors,
    device=devices,
    zone=st.sampled_from(("immediate", "near", "far")),
    detected_at=st.integers(0, 2**42),
)
def test_a_message_matches_its_type(
    made: list[CampaignSnapshot],
    beacon: BeaconSnapshot,
    connector: ConnectorEntry | None,
    device: KnownDevice,
    zone: str,
    detected_at: int,
) -> None:
    composer = Composer(
        topics=Topics.named("p."),
        lifetime=LIFETIME,
        devices=NO_LOOKUP,
        turn_bytes=0,
        clock=lambda: NOW,
    )
    body = records.detection(proximity=zone, detected_at=detected_at, device={"udid": device.udid})
    detection = decode_record(records.record(body), 2.0)
    indexed = IndexedBeacon(beacon, made, connector)
    for campaign in [*made, *made]:  # the second time from what is remembered
        grant = Grant(detection, indexed, campaign, Decision(Reason.GRANTED), b"\1" * 16)
        message = composer.compose(grant, msgspec.json.encode(device), NOW)
        assert message.value == as_types_say(grant, dict(message.headers)["id"].decode(), device)
        assert message.key == device.udid.encode()


def test_cached_fragments_are_bounded() -> None:
    """Contents of 1 MB each, of which the bound holds a few; each message has its own."""
    composer = Composer(
        topics=Topics.named("p."), lifetime=1, devices=NO_LOOKUP, turn_bytes=0, clock=lambda: NOW
    )
    detection = decode_record(records.record(records.detection()), 2.0)
    venue = VenueSnapshot(id=1, name="", company_id=1, active=True)
    beacon = BeaconSnapshot(
        id=1,
        name="",
        uuid=records.UUID,
        major=1,
        minor=1,
        active=True,
        reach=Zone.FAR,
        venue=venue,
    )
    for number in range(40):
        campaign = CampaignSnapshot(
            id=number,
            name="",
            active=True,
            title="",
            push="",
            format="html",
            content=str(number) * 500_000,
            delay=0,
            start=datetime(2026, 1, 1, tzinfo=UTC),
            end=datetime(2027, 1, 1, tzinfo=UTC),
            start_minute=0,
            end_minute=1440,
            weekdays=127,
        )
        indexed = IndexedBeacon(beacon, [campaign], None)
        grant = Grant(detection, indexed, campaign, Decision(Reason.GRANTED), b"\1" * 16)
        device = KnownDevice(udid="phone")
        message = composer.compose(grant, msgspec.json.encode(device), NOW)
        assert msgspec.json.decode(message.value or b"")["html"] == campaign.content
        held = sum(len(each.content) for each in composer._fragments._known.values())
        assert held <= 8 * 1024 * 1024
