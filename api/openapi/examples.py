"""Examples in the document; docs/interface.md sends them, so they work."""

from typing import Any

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
ERROR: Example = {
    "status": "error",
    "message": "not accepted: major",
    "code": 400,
    "fields": {"major": "70000: accepted: a whole number from 0 to 65535"},
}
