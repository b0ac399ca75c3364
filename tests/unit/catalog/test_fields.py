"""The values that each field accepts, and their stored form."""

import json
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest

from catalog.fields import texts, values
from catalog.fields.base import SECRET, Faults, Fields, note_unknown, read_fields
from catalog.fields.campaign import CampaignFields, campaign_columns, campaign_conflicts
from catalog.fields.company import permission
from catalog.fields.connector import connector_conflicts, parameters
from catalog.fields.reader import FieldError, ValueReader
from catalog.fields.venue import VenueInput, names
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
        (values.boolean, "1", True),
        (values.boolean, 0, False),
        (values.boolean, "False", False),
        (values.boolean, True, True),
        (values.integer(0, 9), "7", 7),
        (values.integer(0, 200), 100.0, 100),
        (values.number(-90, 90), 48, 48.0),
        (values.number(-180, 180), "-179.25", -179.25),
        (texts.line(), "Café 👩‍👩‍👧 שלום", "Café 👩‍👩‍👧 שלום"),
        (texts.text(), "two\nlines\x92", "two\nlines\x92"),
        (texts.choice("near", "far"), " FAR ", "far"),
        (values.timestamp, "2026-11-20T10:00:00+0100", TEN),
        (values.timestamp, "2026-11-20T10:00:00+01:00", TEN),
        (values.timestamp, "2026-11-20t09:00:00z", TEN),
        (values.time_of_day(end=False), "09:30", 570),
        (values.time_of_day(end=True), "24:00", 1440),
        (texts.uuid, UUID.upper(), UUID),
        (texts.uuid, UUID.replace("-", ""), UUID),
        (values.cache, "2 Hours", "2 Hours"),
        (texts.time_zone, "Australia/Lord_Howe", "Australia/Lord_Howe"),
        (texts.email, " Ada@Example.org", "ada@example.org"),
        (texts.web_address, "https://example.org:8443/a?b=c", "https://example.org:8443/a?b=c"),
        (names, [{"id": 3, "name": "a"}, "b", {"name": "a"}], ["a", "b"]),
        (permission, {"crm": "1"}, {"crm": 1}),
        (parameters, '[{"key":"k","value":"v"}]', '[{"key":"k","value":"v"}]'),
        (parameters, [], "[]"),
    ],
)
def test_accepted(read: ValueReader, given: Any, kept: Any):
    assert read(given) == kept


def test_a_timestamp_keeps_its_offset():
    read = values.timestamp("2026-11-20T10:00:00+0530")
    assert read.utcoffset() == timedelta(hours=5, minutes=30)


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (values.boolean, 2),
        (values.boolean, "yes"),
        (values.boolean, None),
        (values.boolean, []),
        (values.integer(0, 65535), 65536),
        (values.integer(0, 65535), True),
        (values.integer(0, 65535), 1.5),
        (values.integer(0, 65535), 65536.0),
        (values.integer(0, values.INT64), 1e17),
        (values.integer(0, 65535), float("inf")),
        (values.integer(0, 65535), "٣"),
        (values.number(-90, 90), float("nan")),
        (values.number(-90, 90), "91"),
        (values.number(-90, 90), "nan"),
        (values.number(-90, 90), "4e1"),
        (values.number(-90, 90), "4" * 400),
        (texts.text(), " "),
        (texts.text(), "a\x00b"),
        (texts.text(), 3),
        (texts.text(), "lone \ud800"),
        *((texts.line(), f"a{control}b") for control in CONTROLS),
        (texts.line(255, shortest=0), "\t"),
        (texts.email, "a\x1bb@example.org"),
        (texts.json_list, [{"deep": ["nul \x00"]}]),
        (texts.json_list, [{"nul \x00": 1}]),
        (texts.json_list, nested(texts.DEEPEST + 1)),
        (texts.json_list, nested(900)),
        (texts.text(3), "four"),
        (texts.choice("near", "far"), "close"),
        (values.timestamp, "2026-11-20T10:00:00"),
        (values.timestamp, "2026-02-30T10:00:00Z"),
        (values.timestamp, "0001-01-01T00:00:00+01:00"),
        (values.timestamp, 1763629200000),
        (values.time_of_day(end=False), "24:00"),
        (values.time_of_day(end=True), "24:01"),
        (values.time_of_day(end=True), "12:60"),
        (values.time_of_day(end=True), "9:00"),
        (texts.uuid, UUID[:-1]),
        (texts.uuid, f"{{{UUID}}}"),
        (values.cache, "fortnight"),
        (values.cache, 3),
        (texts.time_zone, "Europe"),
        (texts.time_zone, "../etc/passwd"),
        (texts.time_zone, ""),
        (texts.time_zone, "localtime"),
        (texts.time_zone, "posixrules"),
        (texts.time_zone, "Factory"),
        (texts.time_zone, "right/Europe/Paris"),
        (texts.time_zone, "posix/Europe/Paris"),
        (texts.time_zone, "europe/paris"),
        (texts.time_zone, ["Europe/Paris"]),
        (texts.email, "ada"),
        (texts.web_address, "ftp://example.org"),
        (texts.web_address, "https://me:secret@example.org"),
        (texts.web_address, "https:///path"),
        (texts.web_address, "https://example.org:99999/"),
        (texts.web_address, "https://[::1"),
        (texts.json_list, {}),
        (names, [3]),
        (names, "ab\x00"),
        (names, 3),
        (permission, {"crm": 3}),
        (permission, {"all": 2}),
        (parameters, "{"),
        (parameters, "[" * 100_000),
        (parameters, '{"key": "k"}'),
        (parameters, '[{"key": "k", "value": 3}]'),
        (parameters, '[{"key": "k", "value": "a\\r\\nb"}]'),
    ],
)
def test_refused_with_what_is_accepted(read: ValueReader, given: Any):
    with pytest.raises(FieldError, match="accepted: "):
        read(given)


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
        password: Annotated[str, texts.text(shortest=8), SECRET]

    assert "hunter2" not in read(WithPassword, {"password": "hunter2"})[1]["v.password"]
    assert "hunter22" not in repr(WithPassword(password="hunter22"))


def test_a_long_value_is_shortened():
    _, faults = read(VenueInput, {"active": "x" * 1000})
    assert len(faults["v.active"]) < 120


def test_quoted_values_are_escaped_on_a_terminal():
    _, faults = read(VenueInput, {"name": "\x1b[2J\x9b\u202e"})
    assert faults["v.name"].startswith(r'"\u001b[2J\x9b\u202e": accepted')
    _, faults = read(VenueInput, {"name": nested(100_000)})
    assert faults["v.name"].startswith("nested too deeply: accepted")


def test_unknown_names():
    faults = Faults()
    note_unknown(["name"], {"name": 1, "nam": 2}, place="", faults=faults)
    assert [str(fault) for fault in faults] == ["nam: unknown field; accepted: name"]


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


def test_every_required_field_of_a_campaign_is_reported():
    assert set(read(CampaignFields, {})[1]) == {
        f"v.{name}" for name in ("name", "push", "title", "format", "cache", "start", "end")
    } | {"v.active"}


def test_a_string_is_no_list_of_tags():
    with pytest.raises(FieldError, match="a list of objects"):
        names("entrance")
