"""Examples in the document; docs/interface.md sends them, so they work."""

from typing import Any

from catalog.fields.company import AREAS, WRITE

Example = dict[str, Any]

CREDENTIALS: Example = {"email": "owner@harbour.example", "password": "change-me-please"}
NEW_PASSWORD: Example = {
    "old_password": "change-me-please",
    "new_password": "a longer passphrase of mine",
}
APPLICATION: Example = {"name": "Harbour for Android", "type": "android", "active": True}
VENUE: Example = {
    "name": "Harbour Mall, Marseille",
    "address": "1 Quai du Port, 13002 Marseille",
    "active": True,
    "width": 240,
    "height": 80,
    "image": "https://www.example.com/plan.png",
    "time_zone": "Europe/Paris",
}
BEACON: Example = {
    "name": "Main entrance",
    "uuid": "f7826da6-4fa2-4e98-8024-bc5b71e0893e",
    "major": 1,
    "minor": 1,
    "active": True,
    "proximity": "near",
    "x": 12,
    "y": 40,
    "color": "#ff8800",
    "tags": [{"name": "entrance"}],
}
GEOFENCE: Example = {
    "name": "The harbour",
    "longitude": 5.3698,
    "latitude": 43.2965,
    "radius": 300,
    "active": True,
}
CAMPAIGN: Example = {
    "name": "Welcome",
    "push": "See what is on today",
    "title": "Welcome to Harbour Mall",
    "format": "url",
    "url": "https://www.example.com/today",
    "cache": "day",
    "start": "2026-11-20T00:00:00+0100",
    "end": "2027-11-20T00:00:00+0100",
    "start_time": "09:00",
    "end_time": "20:00",
    "active": True,
    "monday": True,
    "tuesday": True,
    "wednesday": True,
    "thursday": True,
    "friday": True,
    "saturday": True,
    "sunday": False,
    "tags": [{"name": "entrance"}],
}
CONNECTOR: Example = {
    "name": "Our offers",
    "url": "https://www.example.com/offers",
    "method": "POST",
    "auth": "header",
    "parameters": '[{"key": "x-api-key", "value": "abc"}]',
}

# Answers.
_CREATED = "2026-11-20T10:00:00+0100"
SESSION: Example = {
    "status": "success",
    "session": {
        "token": "3q2-7wXHkQ",
        "email": CREDENTIALS["email"],
        "valid": "2026-11-21T10:00:00+0100",
    },
    "code": 200,
}
PROFILE: Example = {
    "id": 1,
    "email": CREDENTIALS["email"],
    "name": "Ada Owner",
    "fonction": "marketing",
    "active": True,
    "company": {
        "id": 1,
        "name": "Harbour Mall",
        "image": "",
        "description": "",
        "active": True,
        "create_on": _CREATED,
    },
    "permission": dict.fromkeys(AREAS, WRITE),
}
APPLICATION_ANSWER: Example = {
    "id": 1,
    **APPLICATION,
    "api_key": "harbour-android-key",
    "api_id": "",
    "expire_on": None,
}
STATISTIC_LINE: Example = {
    "day": "2026-11-20",
    "venue_id": 1,
    "venue": VENUE["name"],
    "kind": "campaign",
    "id": 1,
    "name": "Welcome",
    "detections": 0,
    "devices": 12,
    "notifications": 14,
}
AUDIT_ENTRY: Example = {
    "id": 1,
    "create_on": _CREATED,
    "account_id": 1,
    "email": CREDENTIALS["email"],
    "request": "5f0c2a3e7d0a5c1b",
    "action": "edit",
    "kind": "campaign",
    "ref": 1,
    "before": {"active": True},
    "after": {"active": False},
}
CONNECTOR_CALLS: Example = {
    "breaker": {"state": "closed", "calls": 20, "failures": 1, "seconds": 0.0},
    "calls": [
        {
            "id": "0c5ab8a2-9f0e-5d0b-9c43-3a8a1f1d6a52",
            "create_on": _CREATED,
            "campaign_id": 2,
            "outcome": "connector_status",
            "detail": "status 503; 3 tries",
            "status": 503,
            "seconds": 0.041,
            "tries": 3,
        }
    ],
}
CONNECTOR_TRIAL: Example = {
    "outcome": "published",
    "detail": "",
    "seconds": 0.041,
    "request": {
        "method": "POST",
        "url": CONNECTOR["url"],
        "headers": [{"key": "x-api-key", "value": "*****"}],
        "body": '{\n  "proximity": "near"\n}',
        "left_out": [],
    },
    "reply": {
        "status": 200,
        "headers": [{"key": "content-type", "value": "application/json"}],
        "body": '{\n  "format": "html",\n  "html": "<p>Hello</p>"\n}',
    },
    "notification": {"title": "", "push": "", "format": "html", "content": "<p>Hello</p>"},
}
_TAGGED: Example = {"tags": [{"id": 1, "name": "entrance"}]}
BEACON_ANSWER: Example = {"id": 1, **BEACON, **_TAGGED}
CAMPAIGN_ANSWER: Example = {
    "id": 1,
    "hash": "",
    "template": "",
    "html": "",
    "background": "",
    **CAMPAIGN,
    "color": "",
    "beacons": [BEACON_ANSWER],
    "geofencings": [{"id": 1, **GEOFENCE}],
    "nfcs": [],
    "qrcodes": [],
    **_TAGGED,
}
DEVICE: Example = {
    "id": 1,
    "nb_beacon": 41,
    "nb_campaign": 2,
    "udid": "device-1",
    "token_push": "fcm-token",
    "name": "android",
    "version": "14",
    "model": "Pixel 8",
    "id_connector": 7,
    "create_on": _CREATED,
    "update_on": _CREATED,
    "test": False,
}
DEVICE_DETAIL: Example = {
    "device": [DEVICE],
    "auth": [{"id": 1, "create_on": _CREATED, "ip": "192.0.2.1"}],
    "beacon": [
        {
            "lieu": VENUE["name"],
            "lieu_id": 1,
            "id": 1,
            "beacon": BEACON_ANSWER,
            "status": "near",
            "create_on": _CREATED,
            "ip": "192.0.2.1",
        }
    ],
}
