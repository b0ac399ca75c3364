"""Examples for the document, from the demo's catalog: a running demo accepts each as it is."""

from typing import Any

from catalog.fields.company import AREAS, WRITE

Example = dict[str, Any]

CREDENTIALS: Example = {"email": "you@library.example", "password": "change-me-please"}
NEW_PASSWORD: Example = {
    "old_password": "change-me-please",
    "new_password": "a longer passphrase of mine",
}
APPLICATION: Example = {"name": "Library for Android", "type": "android", "active": True}
VENUE: Example = {
    "name": "Library, Universitat Jaume I",
    "address": "Universitat Jaume I, Castelló de la Plana, Spain",
    "active": True,
    "width": 32,
    "height": 17,
    "image": "https://library.example/plan.png",
    "time_zone": "Europe/Madrid",
}
BEACON: Example = {
    "name": "Study desk Z",
    "uuid": "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10",
    "major": 1,
    "minor": 260,
    "active": True,
    "proximity": "near",
    "x": 12,
    "y": 40,
    "color": "#ff8800",
    "tags": [{"name": "study"}],
}
GEOFENCE: Example = {
    "name": "The campus",
    "longitude": -0.0672,
    "latitude": 39.9944,
    "radius": 300,
    "active": True,
}
CAMPAIGN: Example = {
    "name": "New books",
    "push": "Fresh this week, right next to you.",
    "title": "New on the shelves",
    "format": "url",
    "url": "https://library.example/new-books",
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
    "tags": [{"name": "study"}],
}
CONNECTOR: Example = {
    "name": "Loans",
    "url": "https://library.example/proximity",
    "method": "POST",
    "auth": "header",
    "parameters": '[{"key": "x-library-key", "value": "demo"}]',
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
        "name": "University Library (demo)",
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
    "api_key": "library-android-key",
    "api_id": "",
    "expire_on": None,
}
STATISTIC_LINE: Example = {
    "day": "2026-11-20",
    "venue_id": 1,
    "venue": VENUE["name"],
    "kind": "campaign",
    "id": 1,
    "name": "New books",
    "detections": 0,
    "devices": 12,
    "notifications": 14,
}
DAY_TOTAL: Example = {
    "day": "2026-11-20",
    "detections": 812,
    "visits": 96,
    "notifications": 41,
}
RECORD_TOTAL: Example = {
    "venue_id": 1,
    "venue": VENUE["name"],
    "kind": "campaign",
    "id": 1,
    "name": "New books",
    "detections": 0,
    "visits": 74,
    "notifications": 83,
}
HOUR_FIGURES: Example = {
    "hour": "2026-11-20T09:00:00+0000",
    "detections": 118,
    "notifications": 6,
}
REASON_FIGURES: Example = {
    "reason": "outside_hours",
    "count": 212,
    "campaigns": [
        {"venue_id": 1, "venue": VENUE["name"], "id": 1, "name": "New books", "count": 212}
    ],
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
EXPLAIN_QUESTION: Example = {
    "at": "2026-11-21T23:30:00+0100",
    "proximity": "near",
    "udid": "device-1",
}
_TAGGED: Example = {"tags": [{"id": 1, "name": "study"}]}
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
EXPLANATION: Example = {
    "at": "2026-11-21T23:30:00+0100",
    "proximity": "near",
    "beacon": {name: BEACON_ANSWER[name] for name in ("id", "name", "uuid", "major", "minor")},
    "campaign": {"id": 1, "name": CAMPAIGN["name"]},
    "reason": "outside_hours",
    "checks": [
        {
            "check": "outside_hours",
            "passed": False,
            "found": "Saturday 23:30 in Europe/Madrid",
            "needed": "09:00 to 20:00",
        },
        {
            "check": "throttled",
            "passed": False,
            "found": "claimed at 2026-11-21T11:02:10+0100, 11 h 32 min left",
            "needed": "at least 1 day between two sends",
        },
    ],
    "claim": {
        "notification": "0c5ab8a2-9f0e-5d0b-9c43-3a8a1f1d6a52",
        "detected_at": "2026-11-21T11:02:10+0100",
        "ends_at": "2026-11-22T11:02:10+0100",
    },
    "next_at": "2026-11-23T09:00:00+0100",
    "blocked_by": [],
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
DECISION: Example = {
    "detected_at": "2026-11-20T22:41:00+0100",
    "decided_at": "2026-11-20T22:41:01+0100",
    "lieu": VENUE["name"],
    "beacon": {"id": 1, "name": BEACON["name"]},
    "proximity": "near",
    "reason": "throttled",
    "campaigns": [
        {"id": 2, "name": "Loans", "outcome": "throttled"},
        {"id": 1, "name": CAMPAIGN["name"], "outcome": "outside_hours"},
    ],
}

HELD_DATA: Example = {
    "detections": 41,
    "authentications": 1,
    "presences": 3,
    "keys": 4,
    "kafka": "bounded",
    "kafka_until": "2026-12-04T22:41:00+0000",
}
LIVE_DECISION: Example = {
    "detected_at": "2026-11-20T21:41:00+0000",
    "decided_at": "2026-11-20T21:41:01+0000",
    "lieu": VENUE["name"],
    "beacon": BEACON["name"],
    "proximity": "near",
    "reason": "granted",
    "campaigns": [{"id": 1, "name": CAMPAIGN["name"], "outcome": "granted"}],
    "left_out": 0,
}

RECENT: Example = {
    "since": "2026-11-20T21:27:00+0000",
    "beacons": [{"id": 1, "detections": 41}],
}

ROLE_STATE: Example = {
    "role": "recorder",
    "state": "behind",
    "seconds": 12,
    "waits_for": [],
}

# By the names of the schemas.
EXAMPLES: dict[str, Example] = {
    "Credentials": CREDENTIALS,
    "PasswordChange": NEW_PASSWORD,
    "ApplicationInput": APPLICATION,
    "VenueInput": VENUE,
    "BeaconInput": BEACON,
    "GeofenceInput": GEOFENCE,
    "CampaignCreate": CAMPAIGN,
    "CampaignEdit": CAMPAIGN,
    "ConnectorInput": CONNECTOR,
    "DeviceUpdate": {"device": [{"test": "1"}]},
    "ExplainQuestion": EXPLAIN_QUESTION,
    "SessionEnvelope": SESSION,
    "Profile": PROFILE,
    "Application": APPLICATION_ANSWER,
    "Venue": {"id": 1, **VENUE},
    "Beacon": BEACON_ANSWER,
    "Geofence": {"id": 1, **GEOFENCE},
    "Campaign": CAMPAIGN_ANSWER,
    "Explanation": EXPLANATION,
    "Connector": {"id": 1, **CONNECTOR, "signed": False},
    "ConnectorCalls": CONNECTOR_CALLS,
    "ConnectorTrial": CONNECTOR_TRIAL,
    "Device": DEVICE,
    "DeviceDetail": DEVICE_DETAIL,
    "HeldData": HELD_DATA,
    "Forgotten": {"status": "success", "code": 200} | HELD_DATA,
    "Decision": DECISION,
    "StatisticLine": STATISTIC_LINE,
    "DayTotal": DAY_TOTAL,
    "RecordTotal": RECORD_TOTAL,
    "BeaconDetections": RECENT["beacons"][0],
    "RecentDetections": RECENT,
    "HourFigures": HOUR_FIGURES,
    "ReasonFigures": REASON_FIGURES,
    "LiveDecision": LIVE_DECISION,
    "LiveDecisions": {"after": "1763674861000-0", "decisions": [LIVE_DECISION]},
    "RoleState": ROLE_STATE,
    "AuditEntry": AUDIT_ENTRY,
}
