"""Campaigns: their states, their form, and explanations."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest

from api.console.forms import joined_delay, split_delay
from catalog.models import WEEKDAYS
from rules.parsing import parse_delay
from tests.api.harness import Bodies
from tests.console.visitor import SeenPage, Visitor

ALWAYS = {"start_time": "00:00", "end_time": "24:00", **dict.fromkeys(WEEKDAYS, True)}
YEARS = {"start": "2020-01-01T00:00:00+0100", "end": "2090-01-01T00:00:00+0100"}


async def campaign_with(visitor: Visitor, bodies: Bodies, venue: int, **other: Any) -> int:
    body = bodies.campaign(**ALWAYS | YEARS | other)
    return await visitor.made(f"/lieu/{venue}/campaign", body)


async def test_each_campaign_has_its_state_now(
    visitor: Visitor, bodies: Bodies, venue: int, monkeypatch: pytest.MonkeyPatch
):
    where = f"/region/{venue}/beacon"
    on = await visitor.made(where, bodies.beacon(tags=[]))
    off = await visitor.made(where, bodies.beacon(active=False, tags=[]))
    tomorrow = datetime.now(UTC) + timedelta(days=1, hours=1)
    begins = {"start": f"{tomorrow:%Y-%m-%dT%H:%M:%S%z}"}
    for name, other in (
        ("Sends", {"beacons": [{"id": on}]}),
        ("Is aimed at no place", {}),
        ("Its beacons are switched off", {"beacons": [{"id": off}]}),
        ("Switched off", {"beacons": [{"id": on}], "active": False}),
        ("Ended", {"beacons": [{"id": on}], "end": "2021-01-01T00:00:00+0100"}),
        ("Opens ", {"beacons": [{"id": on}], **begins}),
    ):
        given = {"tags": [], "name": f"about: {name}", **other}
        await campaign_with(visitor, bodies, venue, **given)
    page = await visitor.get(f"/venues/{venue}/campaigns")
    names = [text.removeprefix("about: ") for text in page.texts if text.startswith("about: ")]
    (part,) = [found["hx-get"] or "" for tag, found in page.tags if tag == "tbody"]
    shown = (await visitor.get(part.removeprefix("/console"))).texts
    assert len(shown) == 6
    assert [text[: len(name)] for text, name in zip(shown, names, strict=True)] == names
    # The parts of the overview, each of them about a few campaigns and venues.
    monkeypatch.setattr("api.console.pages.overview._AT_ONCE", 4)
    for _ in range(8):
        await visitor.made("/region", bodies.venue())
    parts, seen, address = 0, list[str](), "/parts/silent"
    while address:
        some = await visitor.get(address)
        following = [found["hx-get"] or "" for _, found in some.tags if "hx-get" in found]
        address = "".join(following).removeprefix("/console")
        seen += some.texts
        parts += 1
    assert parts == 4
    assert "about: Ended" in seen
    assert "about: Sends" not in seen
    assert "5 of 6 campaigns do not send now." in seen


async def test_several_are_switched(visitor: Visitor, bodies: Bodies, venue: int):
    numbers = [await campaign_with(visitor, bodies, venue, tags=["a"]) for _ in range(3)]
    path = f"/lieu/{venue}/campaign"
    before = await visitor.read(path)
    switch, chosen = f"/venues/{venue}/campaigns/switch", [str(each) for each in numbers[:2]]
    await visitor.post(switch, {"chosen": chosen, "active": "0"})
    after = await visitor.read(path)
    assert [each["active"] for each in after] == [False, False, True]
    assert "Saved: 2" in (await visitor.get(f"/venues/{venue}/campaigns")).text
    await visitor.post(switch, {"chosen": chosen, "active": "1"})
    assert await visitor.read(path) == before


async def test_a_campaign_is_made_and_changed(visitor: Visitor, bodies: Bodies, venue: int):
    beacon = await visitor.made(f"/region/{venue}/beacon", bodies.beacon(tags=["door"]))
    poster = {"name": "Poster", "value": "https://pier.example/", "active": True}
    code = await visitor.made(f"/region/{venue}/qrcode", poster)
    own = f"/venues/{venue}/campaigns"
    written = (
        "name=Last boat&title=At six&push=Tickets here&format=url&url=https://pier.example/"
        "&cache=2&cache_unit=hour&on=dwell&dwell_minutes=10&priority=7&ignores_caps=1&monday=1"
        "&friday=1&start_day=2030-07-01&end_day=2030-12-31&start_time=09:00&end_time=18:00&active=1"
    )
    given = dict(parse_qsl(written))
    given |= {"beacons": str(beacon), "qrcodes": str(code), "tags": 'door, "food, drinks", " sea "'}
    wrong = {"start_time": "9 o'clock", "cache": "x", "unsent-template": "a draft"}
    page = SeenPage((await visitor.post(f"{own}/new", given | wrong)).text)
    problems = {tag.get("id") for _, tag in page.tags if tag.get("class") == "problem"}
    assert problems == {"start_time-note", "cache-note"}
    assert page.field("start_day") == "2030-07-01"
    assert "a draft" in page.text
    gone = await visitor.post(f"{own}/new", given | {"beacons": "999999"})
    assert "999999: not a beacon of this company" in SeenPage(gone.text).texts
    made = await visitor.post(f"{own}/new", given)
    number = int(made.headers["location"].rpartition("/")[2])
    path = f"/lieu/{venue}/campaign/{number}"
    stored = await visitor.read(path)
    assert stored["start"] == "2030-07-01T00:00:00+0200"
    assert stored["end"] == "2030-12-31T00:00:00+0100"
    rules = ("cache", "on", "dwell_minutes", "priority", "ignores_caps", "ignores_quiet_hours")
    assert [stored[name] for name in rules] == ["2 hours", "dwell", 10, 7, True, False]
    assert [day for day in WEEKDAYS if stored[day]] == ["monday", "friday"]
    targets = [[each["id"] for each in stored[name]] for name in ("beacons", "qrcodes")]
    assert targets == [[beacon], [code]]
    assert "Created: Last boat" in (await visitor.get(f"{own}/{number}")).text
    assert "Created" not in (await visitor.get(f"{own}/{number}")).text
    # What the form shows, sent back, changes nothing; instants keep the offset they were given.
    precise = stored | {"start": "2030-07-01T08:30:00+0500"}
    await visitor.api.call("PUT", path, visitor.headers, precise)
    form = await visitor.get(f"{own}/{number}")
    kept = {name: form.field(name) for name in ("stored_start", "stored_end", "start_day", "tags")}
    await visitor.post(f"{own}/{number}", given | kept)
    assert await visitor.read(path) == precise
    copy = await visitor.get(f"{own}/new?copy={number}")
    assert (copy.field("name"), copy.field("priority")) == ("Last boat (copy)", "7")
    await visitor.post(form.action("/delete"), {"name": "Last boat"})
    listed = await visitor.get(own)
    assert "Deleted: Last boat" in listed.text
    await visitor.post(listed.action("/restore"), {})
    assert await visitor.read(path) == precise


@pytest.mark.parametrize(
    ("delay", "shown"),
    [
        ("day", ("1", "day")),
        ("15 Minutes", ("15", "minute")),
        ("PT90M", ("90", "minute")),
        ("P14D", ("2", "week")),
        ("none", ("", "none")),
        ("often", ("often", "day")),
        ("1,5 weeks", ("1,5", "week")),
    ],
)
def test_a_delay_is_a_number_and_a_unit(delay: str, shown: tuple[str, str]):
    assert split_delay(delay) == shown
    if shown[0].isdigit():
        assert parse_delay(joined_delay(*shown)) == parse_delay(delay)


async def test_would_it_fire(visitor: Visitor, bodies: Bodies, venue: int):
    beacon = await visitor.made(f"/region/{venue}/beacon", bodies.beacon(tags=["study"]))
    hours = {"start_time": "09:00", "end_time": "18:00"}
    number = await campaign_with(visitor, bodies, venue, **hours)
    path = f"/venues/{venue}/campaigns/{number}/explain"
    query = {"at": "2030-07-01T12:00", "zone": "Europe/Paris", "beacon": str(beacon)}
    answer = SeenPage((await visitor.post(path, query)).text).text
    assert answer.startswith("It would fire 2030-07-01 12:00:00 (UTC+02:00)")
    late = query | {"at": "2030-07-01T20:00", "udid": "anna"}
    answer = SeenPage((await visitor.post(path, late)).text).text
    assert answer.startswith("It would not not at this hour")
    assert "Next at 2030-07-02 09:00:00 (UTC+02:00)." in answer
    wrong = await visitor.post(path, query | {"beacon": "999999"})
    assert "refusal" in wrong.text
