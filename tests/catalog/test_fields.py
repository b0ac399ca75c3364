"""The values that each field accepts, and their stored form."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from catalog.fields import Faults, Fields, read_fields
from catalog.inputs import (
    AccountFields,
    ApplicationInput,
    BeaconFields,
    CampaignFields,
    CompanyFields,
    ConnectorInput,
    GeofenceFields,
    ScanTagFields,
    VenueInput,
    campaign_conflicts,
    connector_conflicts,
)
from catalog.models import WEEKDAYS

PARIS = timezone(timedelta(hours=1))
TEN = datetime(2026, 11, 20, 10, tzinfo=PARIS)
UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
# NUL, bell, line ends, escape, delete, C1's CSI, line separator, right-to-left override, isolate.
CONTROLS = "\x00\x07\n\r\t\x1b\x7f\x85\x9b\u2028\u202e\u2066"


def read(model: type[Fields], given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    faults = Faults()
    found = read_fields(model, given, place="v", faults=faults)
    return found, faults


@pytest.mark.parametrize(
    ("model", "name", "given", "kept"),
    [
        (VenueInput, "active", "1", True),
        (VenueInput, "active", "False", False),
        (VenueInput, "name", "Café 👩‍👩‍👧 שלום", "Café 👩‍👩‍👧 שלום"),
        (BeaconFields, "major", "7", 7),
        (BeaconFields, "proximity", " FAR ", "far"),
        (BeaconFields, "uuid", UUID.upper(), UUID),
        (BeaconFields, "uuid", UUID.replace("-", ""), UUID),
        (GeofenceFields, "longitude", "-179.25", -179.25),
        (CampaignFields, "push", "two\nlines\x92", "two\nlines\x92"),
        (CampaignFields, "start", "2026-11-20T10:00:00+0100", TEN),
        (CampaignFields, "start", "2026-11-20t09:00:00z", TEN),
        (CampaignFields, "cache", "2 Hours", "2 Hours"),
        (CompanyFields, "time_zone", "Australia/Lord_Howe", "Australia/Lord_Howe"),
        (CompanyFields, "time_zone", "", None),
        (CompanyFields, "caps", [{"max": "3", "per": "day"}], [{"max": 3, "per": "day"}]),
        (AccountFields, "email", " Ada@Example.org", "ada@example.org"),
        (AccountFields, "permission", {"crm": "1"}, {"crm": 1}),
        (ConnectorInput, "url", "https://example.org:8443/a?b=c", "https://example.org:8443/a?b=c"),
        (ConnectorInput, "method", "post", "POST"),
        (ConnectorInput, "parameters", '[{"key":"k","value":"v"}]', '[{"key":"k","value":"v"}]'),
    ],
)
def test_accepted(model: type[Fields], name: str, given: Any, kept: Any):
    found, faults = read(model, {name: given})
    assert found == {name: kept}
    assert f"v.{name}" not in faults


DEEP = "[" * 100_000
REFUSED: list[tuple[type[Fields], str, list[Any]]] = [
    (VenueInput, "active", [2, "yes", None, []]),
    (VenueInput, "name", [" ", "a\x00b", 3, "x" * 256, *(f"a{each}b" for each in CONTROLS)]),
    (BeaconFields, "major", [65536, -1, 1.5, float("inf"), "٣", None]),
    (BeaconFields, "proximity", ["close", 3]),
    (BeaconFields, "uuid", [UUID[:-1], 7]),
    (BeaconFields, "color", ["#12345", "rgb(", "red;"]),
    (GeofenceFields, "latitude", [float("nan"), "91", "nan", "4" * 400]),
    (ScanTagFields, "value", ["", "é" * 600]),
    (CampaignFields, "push", [" ", "a\x00b", 3, "lone \ud800"]),
    (CampaignFields, "cache", ["fortnight", 3]),
    (CampaignFields, "start", ["2026-11-20T10:00:00", "2026-02-30T10:00:00Z", 1763629200000]),
    (CampaignFields, "start", ["0001-01-01T00:00:00+01:00", "1763629200"]),
    (CampaignFields, "start_time", ["24:00"]),
    (CampaignFields, "end_time", ["24:01", "12:60", "9:00"]),
    (CampaignFields, "url", ["javascript:alert(1)", "JavaScript:x", "no scheme", "http://a b"]),
    (CompanyFields, "time_zone", ["Europe", "../etc/passwd", "localtime", "Factory", ["UTC"]]),
    (CompanyFields, "time_zone", ["right/Europe/Paris", "posix/Europe/Paris", "europe/paris"]),
    (CompanyFields, "caps", [{}, [{}], [{"max": 0, "per": "day"}], [{"max": 1, "per": "year"}]]),
    (CompanyFields, "caps", [[{"max": 1, "per": "day"}] * 11]),
    (CompanyFields, "quiet_hours", [{"start": "22:00"}, {"start": "24:00", "end": "08:00"}, []]),
    (CompanyFields, "quiet_hours", [{"start": "22:00", "end": "08:00", "weekdays": []}]),
    (AccountFields, "email", ["ada", "a\x1bb@example.org"]),
    (AccountFields, "permission", [{"crm": 3}, {"all": 2}]),
    (ApplicationInput, "type", ["a\x00b"]),
    (ConnectorInput, "url", ["ftp://example.org", "https://me:secret@example.org", "https:///a"]),
    (ConnectorInput, "url", ["https://example.org:99999/", "https://[::1"]),
    (ConnectorInput, "parameters", ["{", DEEP, '{"key": "k"}', '[{"key": "k", "value": 3}]']),
    (ConnectorInput, "parameters", ['[{"key": "k", "value": "a\\r\\nb"}]']),
]


@pytest.mark.parametrize(("model", "name", "refused"), REFUSED)
def test_refused(model: type[Fields], name: str, refused: list[Any]):
    for value in refused:
        found, faults = read(model, {name: value})
        assert found == {}, value
        assert f"v.{name}" in faults


def test_what_is_accepted_is_said_in_words():
    _, faults = read(CampaignFields, {"color": "#12345", "start_time": "9:00"})
    assert faults["v.color"].startswith("accepted: a colour as ")
    assert faults["v.start_time"] == "accepted: a time of day as 09:30"


def test_both_spellings():
    given = {"name": "v", "address": "", "active": 1, "with": 3, "map": None}
    found, faults = read(VenueInput, given)
    assert faults == {}
    assert found == {"name": "v", "address": "", "active": True, "width": 3, "image": None}
    _, faults = read(VenueInput, {**given, "width": 3})
    assert faults == {}
    _, faults = read(VenueInput, {**given, "width": 4})
    assert faults == {"v.width": "given twice, also as with, with another value"}
    found, faults = read(CampaignFields, dict.fromkeys(WEEKDAYS, 1))
    assert found == dict.fromkeys(WEEKDAYS, True)
    assert {f"v.{day}" for day in WEEKDAYS}.isdisjoint(faults)


def test_the_end_is_after_the_start():
    midnight = TEN.replace(hour=0)
    assert campaign_conflicts({"start": TEN, "end": midnight}) == {}
    assert campaign_conflicts({"start": TEN, "end": TEN}).keys() == {"end"}
    last = datetime(9999, 12, 31, tzinfo=PARIS)
    assert campaign_conflicts({"start": TEN, "end": last}) == {}


@pytest.mark.parametrize(
    ("method", "auth", "key", "accepted"),
    [
        ("POST", "header", "Host", False),
        ("GET", "header", "Transfer-Encoding", False),
        ("POST", "header", "not a header", False),
        ("POST", "header", "proxy-authorization", False),
        ("POST", "header", "authorization", True),
        ("POST", "header", "udid", True),
        ("GET", "get", "udid", False),
        ("GET", "get", "host", True),
        ("POST", "get", "udid", True),
    ],
)
def test_a_parameter_does_not_say_what_the_request_says(
    method: str, auth: str, key: str, accepted: bool
):
    listed = [{"key": "x-token", "value": "secret"}, {"key": key, "value": "secret"}]
    values = {"method": method, "auth": auth, "parameters": json.dumps(listed)}
    faults = connector_conflicts(values)
    assert [*faults] == ([] if accepted else ["parameters"])
    assert "secret" not in str(faults)
    assert "x-token" not in str(faults)
