"""Composed messages: id, fields and topic."""

from typing import Any
from uuid import UUID, uuid5

import msgspec
import orjson
import pytest

from catalog.index.entries import ConnectorEntry
from engine.kafka.producer import message_size
from engine.trigger.place_cache import IndexedPlace
from rules.model import CampaignSnapshot
from tests.kafka import records
from tests.trigger.samples import BEACON, campaign, decoded, granted, messages_of, notification_id


def composed(sent: CampaignSnapshot, connector: ConnectorEntry | None = None, **fields: Any):
    detection = decoded(**fields)
    beacon = IndexedPlace(BEACON, [sent], connector)
    made = granted(sent, detection=detection, beacon=beacon)
    (outgoing,) = messages_of(made)
    assert (made.size, made.unsent) == (message_size(outgoing), 1)
    owner = notification_id(detection, sent)
    assert outgoing.key == b"device-1"
    assert dict(outgoing.headers) == {"id": str(UUID(bytes=owner)).encode(), "campaign": b"7"}
    return outgoing.topic, orjson.loads(outgoing.value or b"")


def test_an_id_is_a_uuid_of_version_5():
    made = UUID(bytes=notification_id(decoded(), campaign()))
    assert made.version == 5
    assert made.variant == "specified in RFC 4122"


def test_an_id_names_campaign_device_and_record_and_is_the_same_in_every_version():
    """A consumer knows a notification that is sent again by its id."""
    detection, namespace = decoded(), UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42")
    name = ["7", "device-1", "proximity.detections", "3", "7", "1795165200000"]
    made = UUID(bytes=notification_id(detection, campaign()))
    assert made == uuid5(namespace, "\0".join(name))
    third = msgspec.structs.replace(detection, index=2)  # of the record's detections
    made = UUID(bytes=notification_id(third, campaign()))
    assert made == uuid5(namespace, "\0".join([*name, "2"]))


def test_the_same_detection_and_campaign_have_the_same_id():
    assert notification_id(decoded(), campaign()) == notification_id(
        decoded(), campaign(name="other")
    )


@pytest.mark.parametrize("part", ["topic", "partition", "offset"])
def test_each_part_of_the_record_changes_the_id(part: str):
    other = decoded()
    changed = {"topic": "other.detections", "partition": 4, "offset": 8}[part]
    object.__setattr__(other.record, part, changed)
    assert notification_id(other, campaign()) != notification_id(decoded(), campaign())


def test_campaign_device_and_time_change_the_id():
    ids = {
        notification_id(decoded(), campaign()),
        notification_id(decoded(), campaign(id=8)),
        notification_id(decoded(device={"udid": "device-2"}), campaign()),
        notification_id(decoded(detected_at="2026-11-20T10:00:01+0100"), campaign()),
    }
    assert len(ids) == 4


def test_a_notification_in_full():
    device = {"udid": "device-1", "name": "android", "id_connector": 12, "unknown": 1}
    topic, message = composed(campaign(hash="h", color="#fff"), device=device)
    assert topic == "proximity.notifications"
    assert UUID(message.pop("id")).version == 5
    assert message == {
        "campaign": {"id": 7, "name": "Welcome", "hash": "h"},
        "company": {"id": 9},
        "venue": {"id": 3, "name": "Mall"},
        "beacon": {"id": 5, "name": "Door", "uuid": records.UUID, "major": 1, "minor": 42},
        "proximity": "near",
        "device": {"udid": "device-1", "name": "android", "id_connector": 12},
        "title": "Hello",
        "push": "Come in",
        "format": "url",
        "url": "https://example.org",
        "background": None,
        "color": "#fff",
        "detected_at": "2026-11-20T09:00:00+0000",
        "triggered_at": "2026-11-20T09:01:00+0000",
        "expires_at": "2026-11-20T09:05:00+0000",
    }


@pytest.mark.parametrize("format_", ["template", "url", "html"])
def test_the_format_names_the_one_field_with_the_content(format_: str):
    _, message = composed(campaign(format=format_, content="the content"))
    assert message["format"] == format_
    assert message[format_] == "the content"
    assert {"template", "url", "html"} & message.keys() == {format_}


def test_a_connector_campaign_becomes_a_call_with_its_secrets_still_encrypted():
    connector = ConnectorEntry(
        id=2,
        company_id=9,
        name="CRM",
        url="https://crm.example.org",
        method="POST",
        auth="header",
        parameters="encrypted",
    )
    topic, message = composed(campaign(format="connector", content=None), connector)
    assert topic == "proximity.connector-calls"
    assert message["connector"]["parameters"] == "encrypted"
    assert message["delay"] == 60
    assert "format" not in message


def test_a_connector_campaign_of_a_company_without_connector():
    _, message = composed(campaign(format="connector", content=None))
    assert "connector" not in message
