"""Composed messages: id, fields and topic."""

from uuid import UUID, uuid5

import msgspec
import orjson

from engine.kafka.producer import message_size
from tests.kafka import records
from tests.trigger.samples import campaign, decoded, granted, messages_of, notification_id


def test_an_id_names_campaign_device_and_record_and_is_the_same_in_every_version():
    """A consumer knows a notification that is sent again by its id."""
    detection, namespace = decoded(), UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42")
    name = ["7", "device-1", "proximity.detections", "3", "7", "1795165200000"]
    made = UUID(bytes=notification_id(detection, campaign()))
    assert made == uuid5(namespace, "\0".join(name))
    third = msgspec.structs.replace(detection, index=2)  # of the record's detections
    made = UUID(bytes=notification_id(third, campaign()))
    assert made == uuid5(namespace, "\0".join([*name, "2"]))


def test_a_notification_in_full():
    device = {"udid": "device-1", "name": "android", "id_connector": 12, "unknown": 1}
    made = granted(campaign(hash="h", color="#fff"), detection=decoded(device=device))
    (outgoing,) = messages_of(made)
    assert (made.size, made.unsent) == (message_size(outgoing), 1)
    assert (outgoing.topic, outgoing.key) == ("proximity.notifications", b"device-1")
    message = orjson.loads(outgoing.value or b"")
    id_ = message.pop("id")
    assert UUID(id_).bytes == notification_id(made.detection, campaign())
    assert dict(outgoing.headers) == {"id": id_.encode(), "campaign": b"7"}
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
