"""The values that each field accepts, and their stored form."""

import json
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest

from catalog import fields
from catalog.fields import (
    SECRET,
    Faults,
    FieldError,
    Fields,
    ValueReader,
    read_fields,
)
from catalog.inputs import (
    CampaignFields,
    VenueInput,
    campaign_columns,
    campaign_conflicts,
    connector_conflicts,
    names,
    parameters,
    permission,
)
from catalog.models import WEEKDAYS

PARIS = timezone(timedelta(hours=1))
TEN = datetime(2026, 11, 20, 10, tzinfo=PARIS)
UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
# NUL, bell, line ends, escape, delete, C1's CSI, line separator, right-to-left override, isolate.
CONTROLS = "\x00\x07\n\r\t\x1b\x7f\x85\x9b\u2028\u202e\u2066"


def nested(deep: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(deep - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("read", "given", "kept"),
    [
        (fields.boolean, "1", True),
        (fields.boolean, 0, False),
        (fields.boolean, "False", False),
        (fields.boolean, True, True),
        (fields.integer(0, 9), "7", 7),
        (fields.integer(0, 200), 100.0, 100),
        (fields.number(-90, 90), 48, 48.0),
        (fields.number(-180, 180), "-179.25", -179.25),
        (fields.line(), "Café 👩‍👩‍👧 שלום", "Café 👩‍👩‍👧 שלום"),
        (fields.text(), "two\nlines\x92", "two\nlines\x92"),
        (fields.choice("near", "far"), " FAR ", "far"),
        (fields.timestamp, "2026-11-20T10:00:00+0100", TEN),
        (fields.timestamp, "2026-11-20T10:00:00+01:00", TEN),
        (fields.timestamp, "2026-11-20t09:00:00z", TEN),
        (fields.time_of_day(end=False), "09:30", 570),
        (fields.time_of_day(end=True), "24:00", 1440),
        (fields.uuid, UUID.upper(), UUID),
        (fields.uuid, UUID.replace("-", ""), UUID),
        (fields.cache, "2 Hours", "2 Hours"),
        (fields.time_zone, "Australia/Lord_Howe", "Australia/Lord_Howe"),
        (fields.email, " Ada@Example.org", "ada@example.org"),
        (fields.web_address, "https://example.org:8443/a?b=c", "https://example.org:8443/a?b=c"),
        (names, [{"id": 3, "name": "a"}, "b", {"name": "a"}], ["a", "b"]),
        (permission, {"crm": "1"}, {"crm": 1}),
        (parameters, '[{"key":"k","value":"v"}]', '[{"key":"k","value":"v"}]'),
        (parameters, [], "[]"),
    ],
)
def test_accepted(read: ValueReader, given: Any, kept: Any):
    assert read(given) == kept


def test_a_timestamp_keeps_its_offset():
    read = fields.timestamp("2026-11-20T10:00:00+0530")
    assert read.utcoffset() == timedelta(hours=5, minutes=30)


REFUSED: list[tuple[ValueReader, list[Any]]] = [
    (fields.boolean, [2, "yes", None, []]),
    (fields.integer(0, 65535), [65536, True, 1.5, 65536.0, float("inf"), "٣", " 7", "7.0"]),
    (fields.integer(0, fields.INT64), [1e17]),
    (fields.number(-90, 90), [float("nan"), "91", "nan", "4e1", "4" * 400, True]),
    (fields.text(), [" ", "a\x00b", 3, "lone \ud800"]),
    (fields.text(3), ["four"]),
    (fields.line(), [f"a{control}b" for control in CONTROLS]),
    (fields.line(255, shortest=0), ["\t"]),
    (fields.choice("near", "far"), ["close"]),
    (fields.email, ["ada", "a\x1bb@example.org"]),
    (fields.uuid, [UUID[:-1], f"{{{UUID}}}"]),
    (fields.cache, ["fortnight", 3]),
    (fields.timestamp, ["2026-11-20T10:00:00", "2026-02-30T10:00:00Z", 1763629200000]),
    (fields.timestamp, ["0001-01-01T00:00:00+01:00"]),
    (fields.time_of_day(end=False), ["24:00"]),
    (fields.time_of_day(end=True), ["24:01", "12:60", "9:00"]),
    (fields.time_zone, ["Europe", "../etc/passwd", "", "localtime", "posixrules", "Factory"]),
    (fields.time_zone, ["right/Europe/Paris", "posix/Europe/Paris", "europe/paris", ["UTC"]]),
    (fields.web_address, ["ftp://example.org", "https://me:secret@example.org", "https:///path"]),
    (fields.web_address, ["https://example.org:99999/", "https://[::1"]),
    (fields.link, ["javascript:alert(1)", "JavaScript:x", "no scheme", "http://a b"]),
    (fields.colour, ["#12345", "rgb(", "red;"]),
    (names, [[3], "ab\x00", 3, "entrance"]),
    (permission, [{"crm": 3}, {"all": 2}]),
    (parameters, ["{", "[" * 100_000, '{"key": "k"}', '[{"key": "k", "value": 3}]']),
    (parameters, ['[{"key": "k", "value": "a\\r\\nb"}]']),
]


@pytest.mark.parametrize(("read", "refused"), REFUSED)
def test_refused_with_what_is_accepted(read: ValueReader, refused: list[Any]):
    for value in refused:
        with pytest.raises(FieldError, match="accepted: "):
            read(value)


def read(model: type[Fields], given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    faults = Faults()
    found = read_fields(model, given, place="v", faults=faults)
    return found, {fault.place: fault.message for fault in faults}


def test_both_spellings():
    given = {"name": "v", "address": "", "active": 1, "with": 3, "map": None}
    found, faults = read(VenueInput, given)
    assert faults == {}
    assert found == {"name": "v", "address": "", "active": True, "width": 3, "image": None}
    _, faults = read(VenueInput, {**given, "width": 3})
    assert faults == {}
    _, faults = read(VenueInput, {**given, "width": 4})
    assert faults == {"v.width": "given twice, also as with, with another value"}
    _, faults = read(VenueInput, {**given, "width": None})
    assert list(faults) == ["v.width"]
    _, faults = read(VenueInput, {**given, "width": "wide"})
    assert list(faults) == ["v.width"]
    found, faults = read(VenueInput, {**given, "width": "3", "with": "wide", "active": 7})
    assert set(faults) == {"v.with", "v.active"}
    assert found["width"] == 3
    found, faults = read(CampaignFields, dict.fromkeys(WEEKDAYS, 1))
    assert found == dict.fromkeys(WEEKDAYS, True)
    assert {f"v.{day}" for day in WEEKDAYS}.isdisjoint(faults)


def test_required_and_bad():
    found, faults = read(VenueInput, {"name": "v", "active": "maybe", "height": None})
    assert found == {"name": "v", "height": None}
    assert faults == {
        "v.address": "required, and not given",
        "v.active": '"maybe": accepted: true, false, 1, 0, also as strings',
    }


def test_a_secret_is_not_quoted():
    class WithPassword(Fields):
        password: Annotated[str, fields.text(shortest=8), SECRET]

    assert "hunter2" not in read(WithPassword, {"password": "hunter2"})[1]["v.password"]
    assert "hunter22" not in repr(WithPassword(password="hunter22"))


def test_quoted_values_are_escaped_on_a_terminal():
    _, faults = read(VenueInput, {"name": "\x1b[2J\x9b\u202e"})
    assert faults["v.name"].startswith(r'"\u001b[2J\x9b\u202e": accepted')
    _, faults = read(VenueInput, {"name": nested(100_000)})
    assert faults["v.name"].startswith("nested too deeply: accepted")


def test_campaign_columns():
    assert campaign_columns({"start": TEN, "cache": "day", "monday": False, "tags": []}) == {
        "start_at": TEN,
        "start_offset": 60,
        "cache": "day",
        "delay": 86400,
        "weekdays": 0b1111110,
    }
    assert campaign_columns({"sunday": True}, weekdays=1) == {"weekdays": 0b1000001}


@pytest.mark.parametrize("content", ["template", "url", "html"])
def test_a_format_needs_its_field(content: str):
    assert campaign_conflicts({"format": content, content: " "})[0][0] == content
    assert campaign_conflicts({"format": content, content: "x"}) == []
    assert campaign_conflicts({"format": "connector"}) == []


def test_the_end_is_after_the_start():
    midnight = TEN.replace(hour=0)
    assert campaign_conflicts({"start": TEN, "end": midnight}) == []
    assert campaign_conflicts({"start": TEN, "end": TEN})[0][0] == "end"
    last = datetime(9999, 12, 31, tzinfo=PARIS)
    assert campaign_conflicts({"start": TEN, "end": last}) == []


def test_header_names():
    text = json.dumps([{"key": "not a header", "value": "v"}])
    assert connector_conflicts({"auth": "get", "parameters": text}) == []
    assert connector_conflicts({"auth": "header", "parameters": text})[0][0] == "parameters"
    assert connector_conflicts({"auth": "header"}) == []


@pytest.mark.parametrize(
    ("method", "auth", "key", "accepted"),
    [
        ("POST", "header", "Host", False),
        ("GET", "header", "Transfer-Encoding", False),
        ("POST", "header", "proxy-authorization", False),
        ("POST", "header", "Webhook-Signature", False),
        ("POST", "header", "idempotency-key", False),
        ("POST", "header", "authorization", True),
        ("POST", "header", "udid", True),
        ("GET", "get", "udid", False),
        ("GET", "get", "id_connector", False),
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
    assert (faults == []) == accepted
    for field, expected in faults:
        assert field == "parameters"
        assert key in expected
        assert "secret" not in expected
        assert "x-token" not in expected
